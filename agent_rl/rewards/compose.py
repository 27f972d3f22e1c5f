"""`Reward`: computes a trajectory's total reward from its components, and the flat numbers that verl logs.

Each component's value is normalized (`normalize`) and then clipped (`clip`); the function in `combine` computes the
total from the values and their weights. A component whose gate is closed is not measured and does not count towards the
total. Training, evaluation and the scoring of stored files use the same `Reward`.

If one component cannot measure a trajectory, the trajectory is unscored and does not enter training. Any exception from
a component or scorer, except `UnscoredError`, a timeout or a failed connection, is treated as a bug
(`settings.user_code`).
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
from agent_rl.rewards.metrics import component_metrics, counted
from agent_rl.rewards.source_reward import Measurement, SourceReward
from agent_rl.sandbox.fusion import FusionServer
from agent_rl.settings import TERMS, RewardSettings
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.user_code import sort_out
from agent_rl.trajectory import Score, Trajectory
from agent_rl.work.concurrency import together

SECTION = "agent_rl.reward"

_FOR_ALL = ("per_data_source", "max_unscored_share", "on_error", "models")
"""Keys of the reward's settings that cannot be set per data source."""


class Reward:
    """The reward that the `agent_rl.reward` section describes; one object scores many trajectories concurrently.

    Args:
        settings: the `agent_rl.reward` section.
        max_response_tokens: the limit on an episode's response tokens; only the overlong penalty needs it.
        judged: whether the caller passes a verdict with each trajectory.
        custom: a function that replaces the scorer; it returns a trajectory's verdict and numbers for its notes.
        fusion: the server on which the `code` scorer runs programs; None means this machine's sandbox.

    Attributes:
        sources: the reward for each pattern of data source names; the first match applies, and `*` matches all others.
        components: the components of all data sources, without the built-in terms.
        scorers: the scorers named in the settings.
        needs_groups: whether the samples of one prompt must be scored together, with `score_group`.

    Raises:
        ConfigError: a component's kind or config, a name in a gate, a scorer or a limit is not valid.
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
        shared: dict[str, Component | GroupComponent] = {}
        self.max_response_tokens = max_response_tokens
        sources = [
            SourceReward(own, key, max_response_tokens, judged, shared) for key, own in by_source(settings).items()
        ]
        self.sources: dict[str, SourceReward] = dict(zip(settings.per_data_source, sources[1:], strict=True))
        self.sources.setdefault("*", sources[0])
        self.components = list(shared.values())
        answers = [source.answers for source in sources if source.answers is not None]
        self.scorers = list(dict.fromkeys(scoring.scorer for scoring in answers if scoring.scorer is not None))
        for scoring in answers:
            scoring.custom, scoring.fusion = custom, fusion
        terms = [term for source in sources for term in source.terms]
        self.needs_groups = any(term.needs_groups for term in terms)
        self._names = list(dict.fromkeys(term.name for term in terms))
        self._logs = list(dict.fromkeys(key for term in terms for key in term.logs))

    async def score(self, trajectory: Trajectory, *, verdict: float | None = None) -> Score:
        """Score one trajectory without the rest of its group.

        Args:
            trajectory: the finished episode; the components' logged numbers and notes are stored in `info["reward"]`.
            verdict: the value of `correctness`, if it is already known.

        Raises:
            UnscoredError: the engine or the loop failed, or a component could not be measured.
            ConfigError: the reward cannot score any trajectory.
            UserCodeError: a scorer, a component or `combine` raised an exception, and `on_error` is `stop`.
        """
        (result,) = await self.score_group([trajectory], verdicts=[verdict])
        if isinstance(result, Exception):
            raise result
        return result

    async def score_group(
        self, group: Sequence[Trajectory], *, verdicts: Sequence[float | None] | None = None
    ) -> list[Score | Exception]:
        """Score the samples of one prompt together; return each sample's score, or the exception that prevented it.

        Raises:
            ConfigError: the reward cannot score any trajectory.
        """
        if not group:
            return []
        measurements = [Measurement(*pair) for pair in zip(group, verdicts or [None] * len(group), strict=True)]
        for trajectory in group:
            trajectory.info.pop("reward", None)  # from an earlier scoring
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
        """Return the object that scores answers to a data source's rows, or None if they are not scored."""
        return self._source(data_source).answers

    async def by_rules(self, trajectory: Trajectory, verdict: float, pattern: str) -> Score:
        """Compute the score from the built-in `TERMS` only; other components with an open gate count as 0."""
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
        info = {"logged": {key: measured.logged.get(key, 0.0) for key in self._logs}} if self._logs else {}
        if measured.notes:
            info["notes"] = measured.notes
        if info:
            measured.trajectory.info["reward"] = info
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
        except Exception as error:  # the user's function raised an exception; `sort_out` classifies it
            remedy = f"The trajectory is {measured.trajectory.id!r}"
            raise sort_out("combine", error, stops=source.stops, remedy=remedy) from error
        if not math.isfinite(total):
            raise UnscoredError(f"the total is {total}, computed from the values {measured.values}")
        components = {name: measured.values.get(name, 0.0) for name in self._names}
        parts = measured.per_turn if source.settings.combine == "sum" else {}
        turns = zip(*([weights[name] * part for part in values] for name, values in parts.items()), strict=True)
        return Score(total + 0.0, components, weights, turn_rewards=[math.fsum(turn) for turn in turns])


def answers_of(settings: RewardSettings, data_source: str) -> Correctness | None:
    """Like `Reward.answers`, but without creating components; return None if no scorer is set.

    Raises:
        ConfigError: the scorer does not exist.
    """
    key, name = SECTION, next((name for name in settings.per_data_source if fnmatchcase(data_source, name)), None)
    if name is not None:
        key = f"{SECTION}.per_data_source.{name}"
        settings = _overridden(settings, name, key)
    answers = Correctness(settings, key)
    return None if answers.nothing or settings.reward_api is not None else answers


def by_source(settings: RewardSettings) -> dict[str, RewardSettings]:
    """Return the settings of each data source by configuration key; the first apply to all other data sources.

    Raises:
        ConfigError: an override is not valid.
    """
    keys = {f"{SECTION}.per_data_source.{pattern}": pattern for pattern in settings.per_data_source}
    return {SECTION: settings} | {key: _overridden(settings, pattern, key) for key, pattern in keys.items()}


def extra_info(trajectory: Trajectory, score: Score) -> dict[str, float]:
    """Return the flat numbers that verl logs for one trajectory, under keys that depend only on the `Reward`.

    Times are in seconds, rates are shares of the turns, and `answered` and `stop_*` are 0 or 1. verl uses `acc` as its
    core validation variable; `acc` is missing if answers are not scored.
    """
    return {
        **({"acc": score.components["correctness"]} if "correctness" in score.components else {}),
        **component_metrics(score.components),
        **(trajectory.info.get("reward") or {}).get("logged", {}),
        **counted(trajectory),
    }


def _overridden(settings: RewardSettings, pattern: str, key: str) -> RewardSettings:
    """Return the settings with the overrides of a data source applied; null under `components` removes a component."""
    override = settings.per_data_source[pattern]
    for name in _FOR_ALL:
        if name in override:
            raise ConfigError(f"{key}.{name}", "this key cannot be set per data source", f"Set {SECTION}.{name}")
    base = settings.model_dump(exclude_unset=True, exclude=set(_FOR_ALL))
    merged = _merged(base, override)
    if isinstance(components := merged.get("components"), Mapping):
        merged["components"] = {name: entry for name, entry in components.items() if entry is not None}
    return validated(RewardSettings, merged, Place(key))


def _merged(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; a `scorer` with another name replaces the base's scorer together with its options."""
    merged = {**base, **override}
    for key, value in override.items():
        own = base.get(key)
        if isinstance(value, Mapping) and isinstance(own, Mapping):
            is_other = key == "scorer" and value.get("name", own.get("name")) != own.get("name")
            merged[key] = value if is_other else _merged(own, value)
    return merged
