"""`EpisodeLoop`: runs one row's episode, the same way in training and in evaluation.

Each method of a loop supplies one part of an episode. An `Agent` record defines these parts as functions, and a user's
class may override any method. The caller supplies the policy.
"""

from __future__ import annotations

import time
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from uuid import uuid4

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.budget import EpisodeBudget, EpisodeLimits, make_budget
from agent_rl.agents.episode.episode import run_episode
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.hooks import Hooks, load_hooks
from agent_rl.agents.episode.policy import Policy
from agent_rl.agents.episode.recording import RecordedUser, Recording, Restoration
from agent_rl.agents.users.environment import EnvironmentUser
from agent_rl.agents.users.user import User
from agent_rl.environments import EnvironmentSession, open_environment
from agent_rl.environments.kind import SESSION
from agent_rl.errors import UnscoredError
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.declared import declared_functions
from agent_rl.tools.truncation import ResultLimit
from agent_rl.trajectory import Message, StopReason, Trajectory, row_data

Row = Mapping[str, Any]
"""The columns of a row. Episodes read `raw_prompt`, `extra_info`, `tools_kwargs`, `data_source` and `reward_model`."""


@dataclass(frozen=True)
class EpisodeSetup:
    """The settings and tools that all episodes of a run share.

    Attributes:
        settings: the `agent_rl` section.
        limits: the limits in verl's configuration.
        tools: all configured tools.
        tokenizer: the tokenizer that counts a result's tokens if `agent_rl.tools.max_result_tokens` is set.
    """

    settings: AgentRLSettings
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    tools: Sequence[ToolSpec] = ()
    tokenizer: Any = None


class EpisodeLoop(ABC):
    """Runs one row's episode; a new instance is created for every row."""

    agent: str = ""
    """The agent's name in trajectories."""

    def __init__(self, setup: EpisodeSetup) -> None:
        self.settings, self.limits = setup.settings, setup.limits
        self.tools, self.tokenizer = list(setup.tools), setup.tokenizer
        self.environment: EnvironmentSession | None = None
        """The row's environment, which `run_row` sets when the episode starts."""
        self.recordings: Sequence[Recording] = ()
        """Recorded trajectories to continue, indexed by row `uid`; if empty, every episode starts from its prompt."""

    @abstractmethod
    def format(self) -> Format:
        """Return the format of this agent's turns."""

    def budget(self) -> EpisodeBudget:
        """Return the limits for an episode."""
        return make_budget(self.settings, self.limits)

    def hooks(self) -> Hooks | None:
        """Return the user's hooks, or None if no hooks are configured."""
        return load_hooks(self.settings.hooks)() if self.settings.hooks else None

    def session(self, row: Row) -> ToolSession:
        """Return the row's tool session, which the caller opens; verl defines `tool_selection` and `tools_kwargs`.

        Raises:
            UnscoredError: the row selects a tool that is not configured.
            ConfigError: `extra_info.functions` cannot be read.
        """
        tools, info = self.settings.tools, row.get("extra_info") or {}
        own = [] if self.environment is None else self.environment.specs
        make = ToolSession if self.environment is None else self.environment.tools
        return make(
            [*own, *_selected(self.tools, info.get("tool_selection")), *declared_functions(info.get("functions"))],
            tools_kwargs=row.get("tools_kwargs") or {},
            default_timeout_s=self.settings.budget.tool_timeout_s,
            max_parallel_calls=self.limits.max_parallel_calls,
            result_limit=ResultLimit(
                chars=self.limits.max_tool_response_length if tools.max_result_tokens is None else None,
                tokens=tools.max_result_tokens,
                tokenizer=self.tokenizer,
                side=self.limits.tool_response_truncate_side,
            ),
            settings=tools,
            shared={} if self.environment is None else {SESSION: self.environment},
        )

    def user(self, row: Row) -> User | None:
        """Return the user that the agent talks to, or None if there is no user."""
        return None

    def conversation(self, policy: Policy) -> Policy:
        """Return the policy for the episode, which is `policy` or a wrapper around it."""
        return policy

    async def converse(self, row: Row, policy: Policy, format: Format, trajectory: Trajectory) -> None:
        """Run the policy's conversation with its tools and its user, and record it in the trajectory."""
        user = self.user(row)
        if user is not None and self.recordings:
            user = RecordedUser(user, self.recordings[row["uid"]].replies(self.budget().final))
        if self.environment is not None:
            user = EnvironmentUser(self.environment, user)
        async with self.session(row) as session:
            prompt = list(row["raw_prompt"])
            await run_episode(policy, format, session, prompt, self.budget(), self.hooks(), user, trajectory)

    async def run_row(self, row: Row, policy: Policy, format: Format) -> Trajectory:
        """Run the row's episode.

        Args:
            row: the row's columns.
            policy: a fresh conversation with the model.
            format: the result of the `format` method, which the policy also uses.

        Returns:
            The trajectory; a trajectory with an `error` must not be scored.

        Raises:
            FatalError: a tool, hook, user or format raised this error, or a recording cannot be restored.
            Exception: creating the hooks or the user failed.
        """
        trajectory, limit_s = new_trajectory(row, self.agent), self.settings.budget.tool_timeout_s
        restoration = None
        if self.recordings:
            restoration = Restoration(self.recordings[row["uid"]], policy, trajectory)
            format = restoration.format(format)
        try:
            self.environment = open_environment(self.settings.environments, row, limit_s, trajectory)
            await self.converse(row, self.conversation(policy), format, trajectory)
        except UnscoredError as error:  # opening the row's tools failed
            trajectory.error = str(error)
        if restoration is not None:
            restoration.require_complete()
        return trajectory


@cache
def loop_class(agent: Agent, base: type[EpisodeLoop] = EpisodeLoop) -> type[Any]:
    """Return the class that runs an agent's episodes.

    Args:
        agent: the agent's record, whose functions become methods of the class.
        base: `EpisodeLoop`, or its subclass that verl runs.
    """

    def format(self: EpisodeLoop) -> Format:
        return agent.format(self.settings, self.limits)

    methods: dict[str, Any] = {"format": format, "agent": agent.name, "__doc__": f"The episodes of {agent.name!r}."}
    if make_user := agent.user:
        methods["user"] = lambda self, row: make_user(self.settings, row.get("extra_info") or {})
    if wrap := agent.wrap_policy:
        methods["conversation"] = lambda self, policy: wrap(self.settings, self.limits, policy)
    if run := agent.run:
        methods["converse"] = run
    if make_hooks := agent.hooks:
        methods["hooks"] = lambda self: make_hooks()
    name = "".join(part.capitalize() for part in agent.name.split("_")) + "Loop"
    return ABCMeta(name, (base,), methods)


def new_trajectory(row: Row, agent: str) -> Trajectory:
    """Create a row's trajectory before the episode starts; the trajectory has the row's data, but no turns yet.

    The stop reason is `ERROR` until the episode sets a different reason.
    """
    columns = row_data(row)
    info: dict[str, Any] = {
        "step": row.get("global_steps"),
        "split": (row.get("extra_info") or {}).get("split"),
        "index": row.get("index"),
    }
    return Trajectory(
        prompt=[Message.from_chat(message) for message in row["raw_prompt"]],
        stop_reason=StopReason.ERROR,
        id=f"{row.get('uid', uuid4().hex)}_{row.get('session_id', 0)}",
        agent=agent,
        data_source=str(row.get("data_source") or ""),
        ground_truth=(columns.get("reward_model") or {}).get("ground_truth"),
        ended=time.time(),
        row=columns,
        info={name: value.item() if hasattr(value, "item") else value for name, value in info.items()},  # for JSON
    )


def _selected(tools: list[ToolSpec], selection: Sequence[str] | None) -> list[ToolSpec]:
    if not selection:
        return tools
    by_name = {tool.name: tool for tool in tools}
    if missing := [name for name in selection if name not in by_name]:
        raise UnscoredError(
            f"extra_info.tool_selection has {missing}, but multi_turn.tool_config_path has only {sorted(by_name)}: "
            "correct the row or add the tools"
        )
    return [by_name[name] for name in selection]
