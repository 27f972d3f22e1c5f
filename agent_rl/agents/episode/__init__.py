"""One run of an agent, over the interfaces `Policy` and `Format`; knows no engine and no verl."""

from agent_rl.agents.episode.hooks import Hooks

__all__ = ["Hooks"]
