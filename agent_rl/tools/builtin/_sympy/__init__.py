"""Internals of the tool `sympy`: rewriting notation (in the worker), and the program that computes (in the sandbox)."""
