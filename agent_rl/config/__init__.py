"""Hydra groups that every recipe can choose from, beside verl's own: `hydra.searchpath` names `pkg://agent_rl.config`."""
