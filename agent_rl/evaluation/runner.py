"""Runs an evaluation's episodes concurrently, with the agent and the reward used in training."""

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

logger = logging.getLogger(__name__)

MIN_FAILURES = 16
"""An evaluation is aborted after this number of consecutive engine failures, or after one failure per concurrent
episode if that is more."""


@dataclass(frozen=True)
class Evaluation:
    """An evaluation whose files have been read and checked; `rows` contains the rows of the data, in order."""

    settings: EvaluationSettings
    rows: list[dict[str, Any]]
    specs: list[ToolSpec]
    reward: Reward

    @classmethod
    def load(cls, settings: EvaluationSettings) -> Evaluation:
        """Read the files that the settings refer to.

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
                problem = f"the rows contain {column}, which policy={settings.policy} cannot show"
                raise ConfigError(settings.data, problem, "Use policy=chat for images; remove videos")
        function, limit = settings.reward.custom_reward_function.model_dump(), settings.sampling.max_response_tokens
        reward = configured_reward(settings.agent_rl.reward, function, max_response_tokens=limit)
        if reward.needs_groups:
            problem = "a component compares the samples of a row, which an evaluation scores one by one"
            remedy = "Remove the component, and pass the stored trajectories to `agent-rl reward score`"
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
        """Return the name of the row's agent."""
        return self.settings.loop or str(row["agent_name"])

    def loop(self, agent: str, tokenizer: Any = None) -> EpisodeLoop:
        """Return an agent's loop for one episode; the tokenizer counts the tokens of tool results."""
        settings = self.settings
        limits = EpisodeLimits(
            response_length=settings.sampling.max_response_tokens, **settings.multi_turn.model_dump(mode="python")
        )
        if tokenizer is not None:
            limits = with_syntax(limits, tokenizer, settings.apply_chat_template_kwargs)
        return make_loop(agent, EpisodeSetup(settings.agent_rl, limits, self.specs, tokenizer))

    async def score(self, trajectory: Trajectory) -> None:
        """Score a trajectory, or record why it has no score."""
        try:
            trajectory.score = await self.reward.score(trajectory)
        except UnscoredError as error:
            trajectory.error = trajectory.error or str(error)


async def run(
    evaluation: Evaluation, source: PolicySource, ledger: Ledger, on_record: Callable[[Record], None]
) -> None:
    """Run and store every episode that has no score yet.

    Args:
        evaluation: the evaluation to run.
        source: creates the policies; it must already be open.
        ledger: contains the finished episodes and stores new episodes.
        on_record: called with the record of every episode that finishes.

    Raises:
        EngineError: the engine failed in too many episodes in a row.
        FatalError: a tool or the endpoint reports that every episode would fail; a scorer or component raised an error;
            or the user's code raised the same error eight times.
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
                bugs.add(bug, trajectory.error or trajectory.info["program"])
            failures = failures + 1 if trajectory.stop_reason is StopReason.ENGINE_ERROR else 0
            if failures >= max(MIN_FAILURES, settings.concurrency):
                raise EngineError(
                    f"{failures} episodes in a row have failed, the last with: {trajectory.error}. "
                    "Finished episodes are kept. Run the same command again to resume"
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
    """Run and score one episode for each row, with turns written by a script.

    Args:
        evaluation: the evaluation to run.
        chat: the tokenizer of the model that will be trained on the turns.
        scripts: one script for each row.
        on_episode: called after each episode.

    Returns:
        The trajectories in the order of the rows; `info["tokens"]` contains the data for a trainer.
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
        return await together([episode(number, script) for number, script in enumerate(scripts)])
    finally:
        await evaluation.reward.close()


async def _episode(evaluation: Evaluation, source: PolicySource, folder: Path, number: int, sample: int) -> Trajectory:
    """Run and score one episode of a row; if its reward raises an error, the trajectory is written to `folder`."""
    settings, row, usage = evaluation.settings, evaluation.rows[number], PolicyUsage()
    loop = evaluation.loop(evaluation.agent(row), getattr(source, "tokenizer", None))
    format, seed = loop.format(), settings.seed
    if seed is not None:
        seed = zlib.crc32(f"{seed}/{number}/{sample}".encode()) & 0x7FFFFFFF
    policy = source.policy(usage, seed, format)
    trajectory = await loop.run_row(columns(row, number, sample), policy, format)
    kept = ("split", "index", "state", "bug", "gateway", "program")
    trajectory.info = {
        "row": number,
        "sample": sample,
        **{key: trajectory.info[key] for key in kept if key in trajectory.info},
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
    """Return the row in the form that verl's worker passes to a loop."""
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
