"""Internals of the `calculator` tool: the grammar, which math scorers also use, and exact values."""
