"""Internals of the tool `calculator`: the grammar, which math scorers use too, and exact values."""
