"""Internals of the `sympy` tool: a module that rewrites notation, and the program that computes in the sandbox."""
