"""Internals of the `calculator` tool: the grammar, which math scorers use too, and exact values."""
