"""Experiments with a recipe on a generated world: its cold start, runs with several seeds and values, and receipts."""
