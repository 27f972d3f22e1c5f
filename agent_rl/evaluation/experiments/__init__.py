"""A recipe on a generated world: its cold start, runs over seeds and keys, and the receipts that they leave."""
