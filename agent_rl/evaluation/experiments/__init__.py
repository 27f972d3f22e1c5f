"""Experiments with a recipe on a generated world: its cold start, runs over seeds and keys, and their receipts."""
