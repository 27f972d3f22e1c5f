"""Train tool-using LLM agents over many turns with reinforcement learning, on verl, SGLang and Ray.

A user's script can import everything that it needs from this package. Each name is imported when it is first used, and
only the agent loops import verl and torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_rl.agents.episode.agent import Agent
    from agent_rl.agents.episode.hooks import Hooks
    from agent_rl.agents.registry import register_agent_loop
    from agent_rl.agents.users.user import Reply, User
    from agent_rl.environments import Environment
    from agent_rl.rewards import Component
    from agent_rl.tools import Tool
    from agent_rl.trajectory.trace.tables import TraceTables, read_trace
    from agent_rl.verl_adapter.trainer import AgentTrainer
    from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop
    from agent_rl.verl_adapter.verl_loop import EpisodeAgentLoop as ReactAgentLoop

__all__ = [
    "Agent",
    "AgentTrainer",
    "Component",
    "Environment",
    "EpisodeAgentLoop",
    "Hooks",
    "ReactAgentLoop",
    "Reply",
    "Tool",
    "TraceTables",
    "User",
    "__version__",
    "read_trace",
    "register_agent_loop",
]

__version__ = "0.2.0.dev0"

_HOMES = {
    "Agent": "agent_rl.agents.episode.agent",
    "AgentTrainer": "agent_rl.verl_adapter.trainer",
    "Component": "agent_rl.rewards",
    "Environment": "agent_rl.environments",
    "EpisodeAgentLoop": "agent_rl.verl_adapter.verl_loop",
    "Hooks": "agent_rl.agents.episode.hooks",
    "ReactAgentLoop": "agent_rl.verl_adapter.loops",
    "Reply": "agent_rl.agents.users.user",
    "Tool": "agent_rl.tools",
    "TraceTables": "agent_rl.trajectory.trace.tables",
    "User": "agent_rl.agents.users.user",
    "read_trace": "agent_rl.trajectory.trace.tables",
    "register_agent_loop": "agent_rl.agents.registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
