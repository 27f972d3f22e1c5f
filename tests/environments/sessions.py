"""Environments of the tests as a run uses them: sessions of a class, and whole episodes of a row."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.registry import make_loop
from agent_rl.environments import Environment, EnvironmentSession, EnvironmentType, load_environment
from agent_rl.environments.kind import NAME, ROW
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory import StopReason, Trajectory

LOCKERS = Path(__file__).parents[2] / "recipes/lockers/lockers.py"

T = TypeVar("T")


def lockers() -> EnvironmentType:
    return load_environment("lockers", str(LOCKERS))


def session(
    cls: type[Environment] | EnvironmentType, row: Mapping[str, Any] | None = None, limit_s: float = 5.0
) -> EnvironmentSession:
    kind = cls if isinstance(cls, EnvironmentType) else EnvironmentType(cls.__name__.lower(), "", cls)
    return EnvironmentSession(kind, row or {}, limit_s, Trajectory([], StopReason.ERROR))


def run(world: EnvironmentSession, work: Callable[[EnvironmentSession], Awaitable[T]]) -> T:
    """Reset the environment, do the work with it, and close it."""

    async def trajectory() -> T:
        try:
            await world.reset()
            return await work(world)
        finally:
            await world.close()

    return asyncio.run(trajectory())


def act(tool: str, **arguments: Any) -> str:
    """A ReAct turn that calls a tool."""
    return f"Thought: x\nAction: {tool}\nAction Input: {json.dumps(arguments)}"


def say(text: str) -> str:
    """A ReAct turn without a call."""
    return f"Thought: x\nFinal Answer: {text}"


def episode(
    target: str, values: Mapping[str, Any], *turns: str, agent: str = "react_agent", **sections: Any
) -> Trajectory:
    """An episode of an agent with scripted turns.

    Args:
        target: the environment's `file.py:Class`.
        values: the row's values.
        turns: texts of the policy.
        agent: the agent.
        sections: sections of `agent_rl`.
    """
    row = {
        "raw_prompt": [{"role": "user", "content": values.get("prompt", "Begin.")}],
        "data_source": "world",
        "extra_info": {NAME: "world", ROW: json.dumps(values)} | sections.pop("extra_info", {}),
    }
    settings = AgentRLSettings.model_validate({"environments": {"world": target}, **sections})
    loop = make_loop(agent, EpisodeSetup(settings))
    trajectory: Trajectory = asyncio.run(
        loop.run_row(row, loop.conversation(ScriptedPolicy(list(turns))), loop.format())
    )
    return trajectory
