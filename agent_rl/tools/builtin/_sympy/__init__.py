"""Internals of the `sympy` tool: rewriting notation (in the worker), and the program that computes (in the sandbox)."""
