"""Experiments that train a recipe on a generated world: cold start, runs with several seeds and settings, receipts."""
