"""`known_rows`: returns the agents, tools, scorers and chat template against which rows are checked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.prompt import render_prompt
from agent_rl.agents.registry import agent_names
from agent_rl.agents.users.user import gives_verdict, load_user
from agent_rl.data.check import Numbered, RowFinding, Rows
from agent_rl.errors import ConfigError, UnscoredError, did_you_mean
from agent_rl.preflight.own_code import answered
from agent_rl.rewards import Reward, route
from agent_rl.rewards.components.correctness import Correctness
from agent_rl.rewards.scorers import score_now
from agent_rl.work.store import Pieces

VERLS = ("single_turn_agent", "tool_agent")
"""The agent loops that verl 0.9.1 itself registers."""
OTHERS = 20
"""Maximum number of other rows' ground truths that are scored as answers to a row."""

Kept = Callable[[int], AbstractContextManager[Pieces]]


def known_rows(
    setup: EpisodeSetup,
    *,
    default_agent: str = "react_agent",
    more_agents: Collection[str] = (),
    tokenizer: Any = None,
    options: Mapping[str, Any] | None = None,
    scored: bool = True,
    sample: int | None = 2_000,
    seed: int = 0,
    kept: Kept = lambda total: nullcontext(Pieces()),
) -> Rows:
    """Return the facts about a run against which `check_files` checks rows.

    Args:
        setup: settings, limits and tools of the run; without tools, tool names are not checked.
        default_agent: the agent of rows that name no agent.
        more_agents: names of agents that are registered elsewhere.
        tokenizer: the model's tokenizer, with its chat template; if None, lengths are in characters.
        options: additional arguments for the template.
        scored: whether the scorers of the `agent_rl.reward` section judge the answers.
        sample: number of rows whose ground truths are scored; None means all.
        seed: the seed of the sample.
        kept: opens the stored results of an earlier check of these rows; its argument is the number of ground truths.

    Raises:
        ConfigError: a setting cannot be used.
    """
    checks = _Checks(setup, {*agent_names(), *VERLS, *more_agents}, scored, kept)

    def tokens(row: Mapping[str, Any]) -> int:
        text = render_prompt(row, str(row["agent_name"]), setup, tokenizer, options)
        return len(tokenizer.encode(text, add_special_tokens=False))

    measured: dict[str, Any] = {} if tokenizer is None else {"length": tokens, "unit": "tokens"}
    return Rows(
        names=checks.names, grade=checks.grade, sample=sample, seed=seed,
        defaults={"agent_name": default_agent}, **measured,
    )  # fmt: skip


class _Checks:
    def __init__(self, setup: EpisodeSetup, agents: set[str], scored: bool, kept: Kept) -> None:
        self.reward = Reward(setup.settings.reward.model_copy(update={"components": {}}))
        self.user = load_user(setup.settings.user_sim.user, setup.settings.user_sim.config)
        self.agents, self.tools, self.scored = agents, {spec.name for spec in setup.tools}, scored
        self._kept = kept

    def names(self, row: Mapping[str, Any]) -> Iterator[RowFinding]:
        """Yield findings on unknown agents and tools, and on a ground truth that its scorer cannot read."""
        agent, info = str(row["agent_name"]), row.get("extra_info") or {}
        if agent not in self.agents:
            remedy = f"{did_you_mean(agent, self.agents)} For your own agent, pass its script with --script"
            yield RowFinding("agent", f"{agent!r} is not registered", remedy)
        if self.tools:
            for name in {**(info.get("tools_kwargs") or {}), **dict.fromkeys(info.get("tool_selection") or ())}:
                if name not in self.tools:
                    yield RowFinding("tool", f"{name!r} is not in the tool file", did_you_mean(name, self.tools))
        if (finding := self._unreadable(row)) is not None:
            yield finding

    def _scored_by(self, row: Mapping[str, Any]) -> Correctness | None:
        """Return the component whose scorer judges the answer; None if a simulated user, a service or no one does."""
        answers = self.reward.answers(str(row["data_source"])) if self.scored else None
        if answers is None or answers.api is not None or (answers.scorer is None and gives_verdict(self.user, row)):
            return None
        return answers

    def _unreadable(self, row: Mapping[str, Any]) -> RowFinding | None:
        """Return a finding if the row has no scorer, or a ground truth that its scorer cannot read."""
        source, answers = str(row["data_source"]), self._scored_by(row)
        if answers is None:
            return None
        try:
            scorer = answers.scorer or route(source)
            if scorer.built_in:  # user functions are not called here, because there is no answer to score
                score_now(scorer, "", row["reward_model"].get("ground_truth"))
        except ConfigError as error:
            return RowFinding("scorer", error.problem, error.remedy)
        except UnscoredError as error:
            text = f"data_source {source!r}: {error}"
            return RowFinding("ground truth", text, "Correct the ground truth, or choose another scorer")
        return None

    def grade(self, rows: Sequence[Numbered]) -> Iterator[tuple[int, int, RowFinding]]:
        """Yield findings on rows whose own ground truth scores below 1, or for which another row's truth scores 1."""
        with self._kept(len(rows)) as pieces:
            asyncio.run(self._graded(rows, pieces))
            for place, (file, number, _) in enumerate(rows):
                if pieces[place] is not None:
                    yield file, number, RowFinding(**pieces[place])

    async def _graded(self, rows: Sequence[Numbered], kept: Pieces) -> None:
        by_source: dict[str, list[str]] = {}
        for _, _, row in rows:
            if (answer := _answer(row)) is not None:
                by_source.setdefault(str(row["data_source"]), []).append(answer)
        draw = random.Random(0)
        try:
            for place, (_, _, row) in enumerate(rows):
                other_answers = by_source.get(str(row["data_source"]), [])
                drawn = draw.sample(other_answers, min(OTHERS, len(other_answers)))
                if place not in kept:
                    finding = await self._grade(row, drawn)
                    kept.add(place, finding and asdict(finding))
        finally:
            await self.reward.close()

    async def _grade(self, row: Mapping[str, Any], others: Sequence[str]) -> RowFinding | None:
        answers, own = self._scored_by(row), _answer(row)
        if answers is None or own is None or self._unreadable(row) is not None:
            return None
        try:
            value = (await answers.measure(answered(row, own, row["agent_name"]), None)).value
            if value < 1:
                text = f"the row's own ground truth, given as the answer, scores {value:g}: {_short(own)}"
                return RowFinding("ground truth", text, "Correct the ground truth, or choose another scorer")
            for other in dict.fromkeys(others):
                if other != own and (await answers.measure(answered(row, other, row["agent_name"]), None)).value >= 1:
                    text = f"{_short(other)} scores 1 where the ground truth is {_short(own)}"
                    remedy = "Check whether both mean the same; if not, choose a stricter scorer"
                    return RowFinding("another's ground truth", text, remedy, is_error=False)
        except UnscoredError as error:
            return RowFinding("ground truth", str(error), "Correct the ground truth, or choose another scorer")
        return None


def _answer(row: Mapping[str, Any]) -> str | None:
    """Return the right answer as an agent would give it, or None if the truth has another form, such as tests."""
    truth = row["reward_model"].get("ground_truth")
    if not isinstance(truth, str | int | float) or isinstance(truth, bool) or str(truth).lstrip()[:1] in ("{", "["):
        return None
    return str(truth)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
