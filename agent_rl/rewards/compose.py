"""`Reward`: computes a trajectory's total from its components, and the flat numbers that verl logs.

A component's value goes through `normalize`, then `clip`; the function that `combine` names computes the total from
the values and their weights. A component with a closed gate is neither measured nor part of the total. The same
`Reward` scores in training, in evaluation and in stored files.

If one component cannot be measured, the whole trajectory is unscored and does not enter training. A component or scorer
that raises anything other than `UnscoredError`, a timeout or a failed connection has a bug (`settings.user_code`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Component, GroupComponent
from agent_rl.rewards.components.correctness import Correctness, Custom
from agent_rl.rewards.metrics import counted
from agent_rl.rewards.source_reward import Measurement, SourceReward
from agent_rl.sandbox.fusion import FusionServer
from agent_rl.settings import TERMS, RewardSettings
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.user_code import sort_out
from agent_rl.trajectory import Score, Trajectory
from agent_rl.work.concurrency import together

__all__ = ["Reward", "answers_of", "extra_info"]

SECTION = "agent_rl.reward"

_FOR_ALL = ("per_data_source", "max_unscored_share", "on_error", "models")
"""Keys that cannot differ between data sources."""


class Reward:
    """The reward that a section `agent_rl.reward` describes; one object scores many trajectories concurrently.

    Args:
        settings: the section.
        max_response_tokens: the episodes' limit on response tokens; only the overlong penalty needs it.
        judged: whether each trajectory comes with a verdict.
        custom: gives the verdict on a trajectory and further numbers for its notes, instead of a scorer.
        fusion: the server on which the scorers `code` and `code_all` run programs; None: this machine's sandbox.

    Attributes:
        sources: the reward by pattern of data sources; the first match counts, `*` covers all others.
        components: the components of all data sources, without the built-in terms.
        scorers: the scorers named in the settings.
        needs_groups: whether the samples of one prompt have to be scored together, by `score_group`.

    Raises:
        ConfigError: a component's kind or config, a name in a gate, a scorer or a limit cannot be used.
    """

    def __init__(
        self,
        settings: RewardSettings,
        *,
        max_response_tokens: int | None = None,
        judged: bool = False,
        custom: Custom | None = None,
        fusion: FusionServer | None = None,
    ) -> None:
        judged = judged or custom is not None
        made: dict[str, Component | GroupComponent] = {}
        self.max_response_tokens = max_response_tokens
        default = SourceReward(settings, SECTION, max_response_tokens, judged, made)
        self.sources: dict[str, SourceReward] = {}
        for pattern in settings.per_data_source:
            key = f"{SECTION}.per_data_source.{pattern}"
            overridden = _overridden(settings, pattern, key)
            self.sources[pattern] = SourceReward(overridden, key, max_response_tokens, judged, made)
        sources = [default, *self.sources.values()]
        self.sources.setdefault("*", default)
        self.components = list(made.values())
        answers = [source.answers for source in sources if source.answers is not None]
        self.scorers = list(dict.fromkeys(each.scorer for each in answers if each.scorer is not None))
        for each in answers:
            each.custom, each.fusion = custom, fusion
        terms = [term for source in sources for term in source.terms]
        self.needs_groups = any(term.needs_groups for term in terms)
        self._names = list(dict.fromkeys(term.name for term in terms))
        self._logs = list(dict.fromkeys(key for term in terms for key in term.logs))

    async def score(self, trajectory: Trajectory, *, verdict: float | None = None) -> Score:
        """Score one trajectory by itself.

        Args:
            trajectory: the finished episode. Its `info["reward"]` gets the components' logged numbers and notes.
            verdict: the value of `correctness` if it is known already.

        Raises:
            UnscoredError: the engine or the loop failed, or a component could not be measured.
            ConfigError: no trajectory can be scored.
            UserCodeError: a scorer, a component or `combine` raised, and `on_error` is `stop`.
        """
        (result,) = await self.score_group([trajectory], verdicts=[verdict])
        if isinstance(result, Exception):
            raise result
        return result

    async def score_group(
        self, group: Sequence[Trajectory], *, verdicts: Sequence[float | None] | None = None
    ) -> list[Score | Exception]:
        """Score the samples of one prompt together: a score per sample, or the exception that left it unscored.

        Raises:
            ConfigError: no trajectory can be scored.
        """
        if not group:
            return []
        measurements = [Measurement(*each) for each in zip(group, verdicts or [None] * len(group), strict=True)]
        source = self._source(group[0].data_source)
        for wave in source.waves:
            await together([term.measure(measurements) for term in wave])
        return [self._result(source, measured) for measured in measurements]

    def require_scorers(self, data_sources: Iterable[str]) -> None:
        """Check that there is a scorer for each data source, before the first row is scored.

        Raises:
            ConfigError: no scorer is known for one of the data sources.
        """
        for data_source in data_sources:
            if (answers := self.answers(data_source)) is not None:
                answers.require(data_source)

    def answers(self, data_source: str) -> Correctness | None:
        """Return the object that scores the answers of a data source, or None if they are not scored."""
        return self._source(data_source).answers

    async def by_rules(self, trajectory: Trajectory, verdict: float, pattern: str) -> Score:
        """Compute the score from `TERMS` alone; every other component with an open gate counts as 0."""
        source, measured = self.sources[pattern], Measurement(trajectory, verdict)
        for term in chain(*source.waves):
            if term.name in TERMS:
                await term.measure([measured])
            elif term.open(measured):
                measured.values[term.name] = 0.0
        return self._total(source, measured)

    async def close(self) -> None:
        """Release the components' resources."""
        for component in self.components:
            await component.close()

    def _source(self, data_source: str) -> SourceReward:
        return next(source for pattern, source in self.sources.items() if fnmatchcase(data_source, pattern))

    def _result(self, source: SourceReward, measured: Measurement) -> Score | Exception:
        noted = {"logged": {key: measured.logged.get(key, 0.0) for key in self._logs}} if self._logs else {}
        if measured.notes:
            noted["notes"] = measured.notes
        if noted:
            measured.trajectory.info["reward"] = noted
        if measured.error is not None:
            return measured.error
        try:
            return self._total(source, measured)
        except UnscoredError as error:
            return error

    def _total(self, source: SourceReward, measured: Measurement) -> Score:
        step = measured.trajectory.info.get("step")
        step = step if isinstance(step, int) else None
        weights = {term.name: term.settings.weight_at(step) for term in source.terms if term.name in measured.values}
        try:
            total = float(source.combine(measured.values, weights, measured.trajectory))
        except Exception as error:  # the user's function raised; classified there
            remedy = f"The trajectory is {measured.trajectory.id!r}"
            raise sort_out("combine", error, stops=source.stops, remedy=remedy) from error
        if not math.isfinite(total):
            raise UnscoredError(f"the total is {total}, of {measured.values}")
        components = {name: measured.values.get(name, 0.0) for name in self._names}
        return Score(total=total + 0.0, components=components, weights=weights)


def answers_of(settings: RewardSettings, data_source: str) -> Correctness | None:
    """Return the object that scores a data source's answers, or None, without creating the components.

    Raises:
        ConfigError: the scorer does not exist.
    """
    key, name = SECTION, next((each for each in settings.per_data_source if fnmatchcase(data_source, each)), None)
    if name is not None:
        key = f"{SECTION}.per_data_source.{name}"
        settings = _overridden(settings, name, key)
    answers = Correctness(settings, key)
    return None if answers.nothing or settings.reward_api is not None else answers


def extra_info(trajectory: Trajectory, score: Score) -> dict[str, float]:
    """The flat numbers that verl logs for one trajectory; one `Reward` gives the same keys for every trajectory.

    Times are seconds, rates are shares of the turns, `answered` and `stop_*` are 0 or 1. verl uses `acc` as the core
    validation variable; it is missing without a scorer.
    """
    return {
        **({"acc": score.components["correctness"]} if "correctness" in score.components else {}),
        **score.components,
        **(trajectory.info.get("reward") or {}).get("logged", {}),
        **counted(trajectory),
    }


def _overridden(settings: RewardSettings, pattern: str, key: str) -> RewardSettings:
    """The settings with the overrides of a data source; null below `components` removes a component."""
    override = settings.per_data_source[pattern]
    for name in _FOR_ALL:
        if name in override:
            raise ConfigError(f"{key}.{name}", "it cannot be set per data source", f"Write it as {SECTION}.{name}")
    base = settings.model_dump(exclude_unset=True, exclude=set(_FOR_ALL))
    merged = _merged(base, override)
    merged["components"] = {name: its for name, its in merged.get("components", {}).items() if its is not None}
    return validated(RewardSettings, merged, Place(key))


def _merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], value) if isinstance(value, Mapping) and isinstance(base.get(key), Mapping) else value
        for key, value in override.items()
    }
    return {**base, **both}
