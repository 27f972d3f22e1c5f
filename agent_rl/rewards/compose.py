"""From components to a total, and to the flat numbers that verl logs.

A component's value goes through `normalize`, then `clip`; the total is made of the values and their weights by the
rule that `combine` names. A component whose gate is closed is neither measured nor part of the total. The same
`Reward` scores in training, in an evaluation, and a stored file.

A trajectory of which one component cannot be measured is unscored as a whole: no part of it becomes a lesson.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from pydantic import ValidationError

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards._rule import Rule, Run
from agent_rl.rewards.component import Component, GroupComponent
from agent_rl.rewards.components.terms import SCORED_STOP_REASONS
from agent_rl.sandbox.host.fusion import FusionServer
from agent_rl.settings import RewardSettings, config_error
from agent_rl.trajectory import Score, Trajectory

__all__ = ["Reward", "extra_info"]

SECTION = "agent_rl.reward"

_COUNTED = ("efficiency", "format", "overlong")
"""Components that are functions of the trajectory alone."""

_FOR_ALL = ("per_data_source", "max_unscored_share", "models")
"""Keys that cannot differ between data sources."""


class Reward:
    """The reward that a section `agent_rl.reward` describes; made once, used by many trajectories at a time.

    Args:
        settings: the section.
        max_response_tokens: the limit that the episodes have; only the overlong penalty asks for it.
        judged: whether each trajectory comes with a verdict.
        fusion: where the scorer `code` runs programs; None: in the sandbox of this machine.

    Attributes:
        needs_groups: whether the samples of one prompt have to be scored together, by `score_group`.

    Raises:
        ConfigError: naming what cannot be used: a component's kind or config, a name in a gate, a scorer, a limit.
    """

    def __init__(
        self,
        settings: RewardSettings,
        *,
        max_response_tokens: int | None = None,
        judged: bool = False,
        fusion: FusionServer | None = None,
    ) -> None:
        made: dict[str, Component | GroupComponent] = {}
        self._default = Rule(settings, SECTION, max_response_tokens, judged, made)
        self._rules = []
        for pattern in settings.per_data_source:
            key = f"{SECTION}.per_data_source.{pattern}"
            rule = Rule(_overridden(settings, pattern, key), key, max_response_tokens, judged, made)
            self._rules.append((pattern, rule))
        self._made = list(made.values())
        rules = [self._default, *(rule for _, rule in self._rules)]
        for rule in rules:
            if rule.answers is not None:
                rule.answers.fusion = fusion
        self.needs_groups = any(part.needs_groups for rule in rules for part in rule.parts)
        self._names = list(dict.fromkeys(part.name for rule in rules for part in rule.parts))
        self._logs = list(dict.fromkeys(key for rule in rules for part in rule.parts for key in part.logs))

    async def score(
        self, trajectory: Trajectory, *, verdict: float | None = None, row: Mapping[str, Any] | None = None
    ) -> Score:
        """Score one trajectory by itself.

        Args:
            trajectory: the finished episode. Its `info["reward"]` gets what components want logged and noted.
            verdict: the value of `correctness` when something else has judged the answer.
            row: the row's column `extra_info`, for scorers that read it.

        Raises:
            UnscoredError: the engine or the loop failed, or a component could not be measured.
            ConfigError: no trajectory can be scored.
        """
        (result,) = await self.score_group([trajectory], verdicts=[verdict], rows=[row])
        if isinstance(result, Exception):
            raise result
        return result

    async def score_group(
        self,
        group: Sequence[Trajectory],
        *,
        verdicts: Sequence[float | None] | None = None,
        rows: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> list[Score | Exception]:
        """Score the samples of one prompt together: for each its score, or why it has none.

        Raises:
            ConfigError: as `score`.
        """
        if not group:
            return []
        nothing: list[None] = [None] * len(group)
        runs = [Run(*each) for each in zip(group, verdicts or nothing, rows or nothing, strict=True)]
        rule = self._rule(group[0].data_source)
        for wave in rule.waves:
            await asyncio.gather(*(part.measure(runs) for part in wave))
        return [self._result(rule, run) for run in runs]

    def require_scorers(self, data_sources: Iterable[str]) -> None:
        """Refuse rows that nobody could judge, before the first is run.

        Raises:
            ConfigError: no scorer is known for one of the data sources.
        """
        for data_source in data_sources:
            if (answers := self._rule(data_source).answers) is not None:
                answers.require(data_source)

    async def reweigh(self, trajectory: Trajectory) -> Score:
        """The score that a scored trajectory would have by these settings, without asking anyone again.

        Efficiency, format and overlong are counted anew; other values are those that are stored, as they were
        normalised, and clipped if they were not.

        Raises:
            UnscoredError: there is no stored score, or a value counts now that was not measured then.
        """
        if trajectory.score is None:
            raise UnscoredError("it has no stored score")
        stored, rule, run = trajectory.score.components, self._rule(trajectory.data_source), Run(trajectory)
        logged = (trajectory.info.get("reward") or {}).get("logged", {})
        for part in chain(*rule.waves):
            if part.name in _COUNTED and part.settings.normalize not in ("group", "running"):
                await part.measure([run])
            elif part.open(run):
                if part.name not in stored or logged.get(f"{part.name}_open") == 0.0:
                    raise UnscoredError(f"{part.name}: it was not measured then")
                run.values[part.name] = part.clipped(stored[part.name])
        return self._total(rule, run)

    async def close(self) -> None:
        """Give back what the components hold."""
        for component in self._made:
            await component.close()

    def _rule(self, data_source: str) -> Rule:
        return next((rule for pattern, rule in self._rules if fnmatchcase(data_source, pattern)), self._default)

    def _result(self, rule: Rule, run: Run) -> Score | Exception:
        noted = {"logged": {key: run.logged.get(key, 0.0) for key in self._logs}} if self._logs else {}
        if run.notes:
            noted["notes"] = run.notes
        if noted:
            run.trajectory.info["reward"] = noted
        if run.error is not None:
            return run.error
        try:
            return self._total(rule, run)
        except UnscoredError as error:
            return error

    def _total(self, rule: Rule, run: Run) -> Score:
        step = _step(run.trajectory)
        weights = {part.name: part.settings.weight_at(step) for part in rule.parts if part.name in run.values}
        total = float(rule.combine(run.values, weights, run.trajectory))
        if not math.isfinite(total):
            raise UnscoredError(f"the total is {total}, of {run.values}")
        return Score(total=total + 0.0, components={name: run.values.get(name, 0.0) for name in self._names})


def extra_info(trajectory: Trajectory, score: Score) -> dict[str, float]:
    """The flat numbers that verl logs for one trajectory: the same keys for every one that the same `Reward` scored.

    Times are seconds, rates are shares of the turns, `answered` and `stop_*` are 0 or 1. verl takes `acc` as the core
    validation variable; without a scorer there is none.
    """
    turns = len(trajectory.turns)
    return {
        **({"acc": score.components["correctness"]} if "correctness" in score.components else {}),
        **score.components,
        **(trajectory.info.get("reward") or {}).get("logged", {}),
        "tool_calls": float(trajectory.tool_calls),
        "tool_errors": float(trajectory.tool_errors),
        "repeated_calls": float(trajectory.repeated_calls),
        "malformed_turns": float(trajectory.malformed_turns),
        "malformed_rate": trajectory.malformed_turns / turns if turns else 0.0,
        "turns": float(turns),
        "answered": float(trajectory.answer is not None),
        "tool_seconds": float(trajectory.tool_seconds),
        "generation_seconds": float(trajectory.generation_seconds),
        **{f"stop_{reason.value}": float(trajectory.stop_reason is reason) for reason in SCORED_STOP_REASONS},
    }


def _overridden(settings: RewardSettings, pattern: str, key: str) -> RewardSettings:
    """The settings with what differs for a data source; null below `components` removes one."""
    override = settings.per_data_source[pattern]
    for name in _FOR_ALL:
        if name in override:
            raise ConfigError(f"{key}.{name}", "it holds for all data sources", f"Write it as {SECTION}.{name}")
    base = settings.model_dump(exclude_unset=True, exclude=set(_FOR_ALL))
    merged = _merged(base, override)
    merged["components"] = {name: its for name, its in merged.get("components", {}).items() if its is not None}
    try:
        return RewardSettings.model_validate(merged)
    except ValidationError as error:
        raise config_error(RewardSettings, error, key) from error


def _merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], value) if isinstance(value, Mapping) and isinstance(base.get(key), Mapping) else value
        for key, value in override.items()
    }
    return {**base, **both}


def _step(trajectory: Trajectory) -> int | None:
    step = trajectory.info.get("step")
    return step if isinstance(step, int) else None
