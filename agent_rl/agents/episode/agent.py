"""`Agent`: the record that describes one kind of agent. Training and evaluation use the same record.

    AGENT = Agent("terse_agent", format=lambda settings, limits: ReactFormat("Answer in one word."))

Each file in `agent_rl/agents` that contains an `Agent` record defines a built-in agent. A user's script adds its own
agent with `register_agent_loop(Agent(...))`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.hooks import Hooks
from agent_rl.agents.episode.policy import Policy
from agent_rl.agents.users.user import User
from agent_rl.settings import AgentRLSettings

MakeFormat: TypeAlias = Callable[[AgentRLSettings, EpisodeLimits], Format]
MakeUser: TypeAlias = Callable[[AgentRLSettings, Mapping[str, Any]], "User | None"]
RunEpisode: TypeAlias = Callable[..., Awaitable[None]]
WrapPolicy: TypeAlias = Callable[[AgentRLSettings, EpisodeLimits, Policy], Policy]


@dataclass(frozen=True)
class Agent:
    """Describes one kind of agent through functions, which are sent to Ray's workers by value and called per episode.

    Every function gets the `agent_rl` section as `settings`, and may raise ConfigError for settings that it cannot use.
    """

    name: str
    """The name that selects the agent in the `agent_name` column or in `rollout.agent.default_agent_loop`."""
    format: MakeFormat
    """Function `(settings, limits)` that returns the format of the agent's turns."""
    user: MakeUser | None = None
    """Function `(settings, extra_info)` that returns the user who answers the policy's messages; None means no user."""
    wrap_policy: WrapPolicy | None = None
    """Function `(settings, limits, policy)` that returns a wrapped policy; if None, the policy is not wrapped."""
    hooks: Callable[[], Hooks] | None = None
    """Function that creates an episode's hooks; if None, the class that `agent_rl.hooks` names is used."""
    run: RunEpisode | None = None
    """Function `(loop, row, policy, format, trajectory)` that runs the episode; if None, `run_episode` runs it."""
