"""Tools for long-running work: asyncio limits, progress on the terminal, and results stored for the next start."""
