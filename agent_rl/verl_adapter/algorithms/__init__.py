"""Algorithms that verl's v1 trainer lacks; all other algorithms are configuration files (agent_rl/config/algo)."""
