"""How long work runs: asyncio limits, progress on the terminal, and results stored for the next start."""
