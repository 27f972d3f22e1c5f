"""Algorithms that verl's trainer has lost or never had; all others are configuration (agent_rl/config/algo)."""
