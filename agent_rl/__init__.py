"""Train tool-using LLM agents over many turns by reinforcement learning, on verl, SGLang and Ray.

The names that a user's script needs are importable from here; they load verl and torch only when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_rl.agents.registry import register_agent_loop

__all__ = ["__version__", "register_agent_loop"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "register_agent_loop":
        from agent_rl.agents.registry import register_agent_loop

        return register_agent_loop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
