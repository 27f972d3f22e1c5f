"""Experiments with a recipe on a generated world: the cold start, runs with several seeds and values, and receipts."""
