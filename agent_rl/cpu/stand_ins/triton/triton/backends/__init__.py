"""Stand-in: no backend."""
