"""Algorithms that verl's v1 trainer lacks; all others are configuration (agent_rl/config/algo)."""
