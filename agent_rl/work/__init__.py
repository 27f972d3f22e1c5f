"""How work is done: limits of asyncio, what a long command shows, and what it keeps for its next start."""
