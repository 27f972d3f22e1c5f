"""Runs the episodes of an evaluation, many at a time, each with the agent and the reward of training."""

from __future__ import annotations

import asyncio
import copy
import itertools
import logging
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeLoop, EpisodeSetup
from agent_rl.agents.policies import PolicySource
from agent_rl.agents.policies.chat_template import with_syntax
from agent_rl.agents.policies.media import with_images
from agent_rl.agents.policies.script import Script, ScriptedTokens
from agent_rl.agents.policies.source import PolicyUsage
from agent_rl.agents.policies.token_policy import TokenPolicy
from agent_rl.agents.policies.tokens import ChatTokenizer
from agent_rl.agents.registry import load_script, make_loop
from agent_rl.agents.users.user import gives_verdict, load_user
from agent_rl.data import check_rows, read_parquet
from agent_rl.errors import ConfigError, EngineError, UnscoredError
from agent_rl.evaluation.ledger import Ledger, Record
from agent_rl.evaluation.settings import EvaluationSettings
from agent_rl.rewards import Reward
from agent_rl.rewards.custom import configured_reward
from agent_rl.rewards.repeating import repeatable
from agent_rl.settings.user_code import RepeatedBugs, UserCodeError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import StopReason, Trajectory
from agent_rl.verl_adapter.inspection import load_specs
from agent_rl.work.concurrency import together

__all__ = ["Evaluation", "columns", "run", "run_scripts"]

logger = logging.getLogger(__name__)

MIN_FAILURES = 16
"""Episodes in a row in which the engine failed, after which an evaluation ends; more where more run at once."""


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated, read and checked; `rows` are those of the data, in its order."""

    settings: EvaluationSettings
    rows: list[dict[str, Any]]
    specs: list[ToolSpec]
    reward: Reward

    @classmethod
    def load(cls, settings: EvaluationSettings) -> Evaluation:
        """Read the files that the settings name.

        Raises:
            ConfigError: a file or a setting cannot be used.
        """
        if settings.script:
            load_script(settings.script)
        rows = read_parquet(settings.data)[: settings.limit]
        if settings.default_loop is not None:
            rows = [{**row, "agent_name": row.get("agent_name") or settings.default_loop} for row in rows]
        check_rows(rows, source=settings.data)
        for column in ("images", "videos"):
            if any(row.get(column) for row in rows) and (column, settings.policy) != ("images", "chat"):
                problem = f"its rows have {column}, which policy={settings.policy} is not shown"
                raise ConfigError(settings.data, problem, "Use policy=chat for images, and leave videos out")
        function, limit = settings.reward.custom_reward_function.model_dump(), settings.sampling.max_response_tokens
        reward = configured_reward(settings.agent_rl.reward, function, max_response_tokens=limit)
        if reward.needs_groups:
            problem = "a component compares the samples of a row, which an evaluation scores one by one"
            remedy = "Leave it out here, and give the trajectories that are kept to `agent-rl reward score`"
            raise ConfigError("agent_rl.reward", problem, remedy)
        user = load_user(settings.agent_rl.user_sim.user, settings.agent_rl.user_sim.config)
        reward.require_scorers({str(row["data_source"]) for row in rows if not gives_verdict(user, row)})
        evaluation = cls(settings, rows, load_specs(settings.tools) if settings.tools else [], reward)
        for agent in {evaluation.agent(row) for row in rows}:
            loop = evaluation.loop(agent)
            loop.format()
            loop.budget()
        return evaluation

    def agent(self, row: dict[str, Any]) -> str:
        """The name of the row's agent."""
        return self.settings.loop or str(row["agent_name"])

    def loop(self, agent: str, tokenizer: Any = None) -> EpisodeLoop:
        """An agent's loop for one episode; a tokenizer counts the tokens of results."""
        given = self.settings
        limits = EpisodeLimits(
            response_length=given.sampling.max_response_tokens, **given.multi_turn.model_dump(mode="python")
        )
        if tokenizer is not None:
            limits = with_syntax(limits, tokenizer, given.apply_chat_template_kwargs)
        return make_loop(agent, EpisodeSetup(given.agent_rl, limits, self.specs, tokenizer))

    async def score(self, trajectory: Trajectory) -> None:
        """Score a trajectory, or note why it has no score."""
        try:
            trajectory.score = await self.reward.score(trajectory)
        except UnscoredError as error:
            trajectory.error = trajectory.error or str(error)


async def run(
    evaluation: Evaluation, source: PolicySource, ledger: Ledger, on_record: Callable[[Record], None]
) -> None:
    """Run and store every episode that has no score yet.

    Args:
        evaluation: what to run.
        source: gives the policies; it is open.
        ledger: knows what is done.
        on_record: is called for every episode that finishes.

    Raises:
        EngineError: the engine failed in too many episodes in a row.
        FatalError: from a tool or the endpoint: every episode would fail; a scorer or component raised; or a bug of
            the user's code, eight times.
    """
    settings = evaluation.settings
    if settings.agent_rl.tools.max_result_tokens is not None and not hasattr(source, "tokenizer"):
        raise ConfigError(
            "agent_rl.tools.max_result_tokens",
            "a chat endpoint counts tokens only after a request",
            "Use policy=sglang, vllm or local, or the limit in characters: multi_turn.max_tool_response_length",
        )
    done = {key for key, record in ledger.read().items() if record.error is None}
    episodes = itertools.product(range(len(evaluation.rows)), range(settings.n))
    todo = (episode for episode in episodes if episode not in done)
    bugs, failures = RepeatedBugs(), 0

    async def work() -> None:
        nonlocal failures
        for row, sample in todo:
            trajectory = await _episode(evaluation, source, ledger.folder, row, sample)
            on_record(ledger.append(trajectory))
            if bug := trajectory.info.get("bug"):
                bugs.add(bug, str(trajectory.error))
            failures = failures + 1 if trajectory.stop_reason is StopReason.ENGINE_ERROR else 0
            if failures >= max(MIN_FAILURES, settings.concurrency):
                raise EngineError(
                    f"{failures} episodes in a row have failed, the last with: {trajectory.error}. "
                    "Finished episodes are kept: run the same command again to resume"
                )

    try:
        await together([work() for _ in range(min(settings.concurrency, len(evaluation.rows) * settings.n))])
    finally:
        await evaluation.reward.close()


async def run_scripts(
    evaluation: Evaluation,
    chat: ChatTokenizer,
    scripts: Sequence[Script],
    on_episode: Callable[[], None] = lambda: None,
) -> list[Trajectory]:
    """Run an episode for each row, whose turns a script writes, and score it.

    Args:
        evaluation: what to run.
        chat: the tokenizer of the model that is to write such turns.
        scripts: one for each row.
        on_episode: called after each.

    Returns:
        The trajectories in the order of the rows; `info["tokens"]` has what a trainer would get.
    """
    free, settings = asyncio.Semaphore(evaluation.settings.concurrency), evaluation.settings

    async def episode(number: int, script: Script) -> Trajectory:
        row = evaluation.rows[number]
        async with free:
            loop = evaluation.loop(evaluation.agent(row), chat.tokenizer)
            format = loop.format()
            policy = ScriptedTokens(script, chat, settings.sampling.max_response_tokens, format)
            trajectory = await loop.run_row(columns(row, number, 0), policy, format)
            trajectory.info["tokens"] = policy.record()
            await evaluation.score(trajectory)
            on_episode()
            return trajectory

    try:
        return await together([episode(*each) for each in enumerate(scripts)])
    finally:
        await evaluation.reward.close()


async def _episode(evaluation: Evaluation, source: PolicySource, folder: Path, number: int, sample: int) -> Trajectory:
    """One scored episode of a row; `folder` gets the trajectory of a reward that raises."""
    settings, row, usage = evaluation.settings, evaluation.rows[number], PolicyUsage()
    loop = evaluation.loop(evaluation.agent(row), getattr(source, "tokenizer", None))
    format, seed = loop.format(), None if settings.seed is None else _seed(settings.seed, number, sample)
    policy = source.policy(usage, seed, format)
    trajectory = await loop.run_row(columns(row, number, sample), policy, format)
    trajectory.info = {
        "row": number,
        "sample": sample,
        **{key: trajectory.info[key] for key in ("split", "index", "bug") if key in trajectory.info},
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
    }
    if settings.agent_rl.trace.tokens and isinstance(policy, TokenPolicy) and trajectory.error is None:
        trajectory.info["tokens"] = policy.record()
    try:
        await evaluation.score(trajectory)
    except UserCodeError as error:
        logger.error("%s\n%s", error, error.trace)
        config = {
            **settings.model_dump(mode="json", include={"agent_rl", "reward"}),
            "data": {"max_response_length": settings.sampling.max_response_tokens},
        }
        raise repeatable(error, trajectory, folder / "failed_rewards", config) from error
    return trajectory


def columns(row: dict[str, Any], number: int, sample: int) -> dict[str, Any]:
    """The row as verl's worker gives it to a loop."""
    info = row["extra_info"]
    prompt = copy.deepcopy(list(row["prompt"]))
    return {
        **row,
        "raw_prompt": with_images(prompt, row["images"]) if row.get("images") else prompt,
        "tools_kwargs": info.get("tools_kwargs"),
        "index": info.get("index"),
        "uid": number,
        "session_id": sample,
    }


def _seed(base: int, row: int, sample: int) -> int:
    return zlib.crc32(f"{base}/{row}/{sample}".encode()) & 0x7FFFFFFF
