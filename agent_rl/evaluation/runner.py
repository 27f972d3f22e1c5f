"""Runs what an evaluation still lacks, many episodes at a time, each with the loop and the reward of training."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_rl.agents.agents import make_conversation, make_format, make_user
from agent_rl.agents.episode.budget import Budget
from agent_rl.agents.episode.episode import run_episode
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.hooks import load_hooks
from agent_rl.agents.episode.setup import make_budget, open_tools
from agent_rl.agents.users.user import gives_verdict, load_user
from agent_rl.concurrency import together
from agent_rl.data import check_rows, read_parquet
from agent_rl.errors import ConfigError, EngineError, UnscoredError
from agent_rl.evaluation.ledger import Ledger, Record
from agent_rl.evaluation.settings import EvaluationSettings
from agent_rl.policies import PolicySource
from agent_rl.policies.source import Usage
from agent_rl.policies.token_policy import TokenPolicy
from agent_rl.rewards import Reward
from agent_rl.tools import ToolSpec, load_tools
from agent_rl.trajectory import Message, StopReason, Trajectory

__all__ = ["Evaluation", "load_specs", "run"]

MIN_FAILURES = 16
"""Episodes in a row in which the engine failed, after which an evaluation ends; more where more run at once."""


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, read and checked.

    Attributes:
        rows: of the data, in its order.
        formats: of the agents that the rows name.
    """

    settings: EvaluationSettings
    rows: list[dict[str, Any]]
    specs: list[ToolSpec]
    formats: Mapping[str, Format]
    budget: Budget
    reward: Reward

    @classmethod
    def load(cls, settings: EvaluationSettings) -> Evaluation:
        """Read the files that the settings name.

        Raises:
            ConfigError: for what cannot be used in them.
        """
        rows = read_parquet(settings.data)[: settings.limit]
        check_rows(rows, source=settings.data)
        agents = {settings.loop or str(row["agent_name"]) for row in rows}
        formats = {agent: make_format(agent, settings.agent_rl, settings.multi_turn.format) for agent in agents}
        reward = Reward(settings.agent_rl.reward, max_response_tokens=settings.sampling.max_response_tokens)
        if reward.needs_groups:
            raise ConfigError(
                "agent_rl.reward",
                "a component compares the samples of a row, which an evaluation scores one by one",
                "Leave it out here, and give the trajectories that are kept to `agent-rl reward score`",
            )
        budget = make_budget(settings.agent_rl, settings.multi_turn, settings.sampling.max_response_tokens)
        user = load_user(settings.agent_rl.user_sim.user, settings.agent_rl.user_sim.config)
        reward.require_scorers({str(row["data_source"]) for row in rows if not gives_verdict(user, row)})
        specs = load_specs(settings.tools) if settings.tools else []
        return cls(settings, rows, specs, formats, budget, reward)

    @property
    def size(self) -> int:
        """Number of episodes."""
        return len(self.rows) * self.settings.n


async def run(
    evaluation: Evaluation, source: PolicySource, ledger: Ledger, on_record: Callable[[Record], None]
) -> None:
    """Run every episode that has no score yet, and keep it.

    Args:
        evaluation: what to run.
        source: gives the policies; it is open.
        ledger: knows what is done.
        on_record: is called for every episode that is now done.

    Raises:
        EngineError: the engine has failed so often in a row that it is taken for gone.
        FatalError: from a tool or the endpoint: every episode would fail.
    """
    settings = evaluation.settings
    if settings.agent_rl.tools.max_result_tokens is not None and not hasattr(source, "tokenizer"):
        raise ConfigError(
            "agent_rl.tools.max_result_tokens",
            "nobody counts tokens before a chat endpoint is asked",
            "Use policy=sglang, vllm or local, or the limit in characters: multi_turn.max_tool_response_length",
        )
    done = {key for key, record in ledger.read().items() if record.error is None}
    todo = iter(
        (row, sample)
        for row in range(len(evaluation.rows))
        for sample in range(settings.n)
        if (row, sample) not in done
    )
    health = _Health(max(MIN_FAILURES, settings.concurrency))
    runner = _Runner(evaluation, source, ledger, on_record, health)
    try:
        await together([runner.work(todo) for _ in range(min(settings.concurrency, evaluation.size))])
    finally:
        await evaluation.reward.close()


def load_specs(path: str) -> list[ToolSpec]:
    """The tools of a file; verl's own `BaseTool` classes behind an adapter.

    Raises:
        ConfigError: naming file, entry and field.
    """
    specs = load_tools(path)
    if any(spec.is_verl for spec in specs):
        from agent_rl.verl_adapter.verl_tools import load, to_specs

        return to_specs(load(path))
    return specs


class _Health:
    """Whether the engine still answers."""

    def __init__(self, limit: int) -> None:
        self._limit, self._failures = limit, 0

    def note(self, trajectory: Trajectory) -> None:
        failed = trajectory.stop_reason is StopReason.ENGINE_ERROR
        self._failures = self._failures + 1 if failed else 0
        if self._failures >= self._limit:
            raise EngineError(
                f"{self._failures} episodes in a row have failed, the last with: {trajectory.error}. "
                "What is done is kept: the same command goes on from there"
            )


@dataclass(frozen=True)
class _Runner:
    evaluation: Evaluation
    source: PolicySource
    ledger: Ledger
    on_record: Callable[[Record], None]
    health: _Health

    async def work(self, todo: Iterator[tuple[int, int]]) -> None:
        for row, sample in todo:
            trajectory = await self.episode(row, sample)
            self.on_record(self.ledger.append(trajectory))
            self.health.note(trajectory)

    async def episode(self, row_number: int, sample: int) -> Trajectory:
        evaluation, settings = self.evaluation, self.evaluation.settings
        row = evaluation.rows[row_number]
        agent, usage = settings.loop or str(row["agent_name"]), Usage()
        seed = None if settings.seed is None else _seed(settings.seed, row_number, sample)
        policy = self.source.policy(usage, seed, evaluation.formats[agent])
        info = row["extra_info"]
        columns = {
            "extra_info": info,
            "tools_kwargs": info.get("tools_kwargs"),
            "index": info.get("index"),
            "session_id": sample,
        }
        prompt = copy.deepcopy(list(row["prompt"]))
        limit = settings.sampling.max_response_tokens
        try:
            tokenizer = getattr(self.source, "tokenizer", None)
            tools = open_tools(evaluation.specs, columns, settings.agent_rl, settings.multi_turn, tokenizer)
            hooks = load_hooks(settings.agent_rl.hooks)() if settings.agent_rl.hooks else None
            async with tools:
                trajectory = await run_episode(
                    make_conversation(agent, settings.agent_rl, policy, limit),
                    evaluation.formats[agent],
                    tools,
                    prompt,
                    evaluation.budget,
                    hooks,
                    make_user(agent, settings.agent_rl, info),
                )
        except UnscoredError as error:
            messages = [Message.from_chat(message) for message in prompt]
            trajectory = Trajectory(prompt=messages, stop_reason=StopReason.ERROR, error=str(error))
        trajectory.id, trajectory.agent = f"{row_number}_{sample}", agent
        trajectory.data_source = str(row["data_source"])
        trajectory.ground_truth = row["reward_model"].get("ground_truth")
        trajectory.info = {
            "row": row_number,
            "sample": sample,
            "split": info.get("split"),
            "index": info.get("index"),
            "requests": usage.requests,
            "input_tokens": usage.input_tokens,
        }
        if info.get("rubric") is not None:
            trajectory.info["rubric"] = info["rubric"]
        if settings.agent_rl.trace.tokens and isinstance(policy, TokenPolicy) and trajectory.error is None:
            trajectory.info["tokens"] = policy.record()
        try:
            trajectory.score = await evaluation.reward.score(trajectory, row=info)
        except UnscoredError as error:
            trajectory.error = trajectory.error or str(error)
        return trajectory


def _seed(base: int, row: int, sample: int) -> int:
    """Of one episode: another for each, the same in every run."""
    return zlib.crc32(f"{base}/{row}/{sample}".encode()) & 0x7FFFFFFF
