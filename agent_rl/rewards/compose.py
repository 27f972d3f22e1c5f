"""From components to a total, and to the flat numbers that verl logs.

A component's value goes through `normalize`, then `clip`; the total is made of the values and their weights by the
rule that `combine` names. A component whose gate is closed is neither measured nor part of the total. The same
`Reward` scores in training, in an evaluation, and a stored file.

A trajectory of which one component cannot be measured is unscored as a whole: no part of it becomes a lesson.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from pydantic import ValidationError

from agent_rl.errors import AgentRLError, ConfigError, FatalError, UnscoredError, did_you_mean
from agent_rl.reward_settings import TermSettings, parse_gate
from agent_rl.rewards import terms
from agent_rl.rewards.combine import combiner
from agent_rl.rewards.component import Component, GroupComponent, Value
from agent_rl.rewards.correctness import Correctness
from agent_rl.rewards.kinds import make_component
from agent_rl.rewards.normalize import Normalizer
from agent_rl.sandbox.fusion import FusionServer
from agent_rl.settings import TERMS, RewardSettings, config_error
from agent_rl.trajectory import Score, StopReason, Trajectory

__all__ = ["SCORED_STOP_REASONS", "Reward", "extra_info", "require_scorable"]

SECTION = "agent_rl.reward"

_UNSCORED_STOP_REASONS = (StopReason.ENGINE_ERROR, StopReason.ERROR)
SCORED_STOP_REASONS = tuple(reason for reason in StopReason if reason not in _UNSCORED_STOP_REASONS)
"""The stop reasons that a scored trajectory can have."""

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
        self._default = _Rule(settings, SECTION, max_response_tokens, judged, made)
        self._rules = []
        for pattern in settings.per_data_source:
            key = f"{SECTION}.per_data_source.{pattern}"
            rule = _Rule(_overridden(settings, pattern, key), key, max_response_tokens, judged, made)
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
        runs = [_Run(*each) for each in zip(group, verdicts or nothing, rows or nothing, strict=True)]
        rule = next(
            (rule for pattern, rule in self._rules if fnmatchcase(group[0].data_source, pattern)), self._default
        )
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
        stored, rule, run = (
            trajectory.score.components,
            self._rule(trajectory.data_source),
            _Run(trajectory, None, None),
        )
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

    def _rule(self, data_source: str) -> _Rule:
        return next((rule for pattern, rule in self._rules if fnmatchcase(data_source, pattern)), self._default)

    def _result(self, rule: _Rule, run: _Run) -> Score | Exception:
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

    def _total(self, rule: _Rule, run: _Run) -> Score:
        step = _step(run.trajectory)
        weights = {part.name: part.settings.weight_at(step) for part in rule.parts if part.name in run.values}
        total = float(rule.combine(run.values, weights, run.trajectory))
        if not math.isfinite(total):
            raise UnscoredError(f"the total is {total}, of {run.values}")
        return Score(total=total + 0.0, components={name: run.values.get(name, 0.0) for name in self._names})


def require_scorable(trajectory: Trajectory) -> None:
    """Refuse a trajectory that says nothing about the policy.

    Raises:
        UnscoredError: when the engine or the loop failed.
    """
    if trajectory.stop_reason in _UNSCORED_STOP_REASONS:
        raise UnscoredError(f"trajectory {trajectory.id!r} ended by {trajectory.stop_reason.value}: {trajectory.error}")


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


@dataclass(slots=True)
class _Run:
    """One trajectory on its way to a score."""

    trajectory: Trajectory
    verdict: float | None
    row: Mapping[str, Any] | None
    values: dict[str, float] = field(default_factory=dict)
    logged: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None

    def __post_init__(self) -> None:
        try:
            require_scorable(self.trajectory)
        except UnscoredError as error:
            self.error = error


Source = Callable[[Sequence[_Run]], Awaitable[Sequence[Value | BaseException]]]
"""Measures runs; an exception instead of a value where one has none."""


class _Part:
    """A component as one rule has it."""

    def __init__(self, name: str, settings: TermSettings, source: Source, logs: Iterable[str], *, group: bool) -> None:
        self.name, self.settings, self.source = name, settings, source
        self.gate = parse_gate(settings.gate)
        self.normalizer = Normalizer(settings.normalize)
        self.needs_groups = group or settings.normalize == "group"
        self.changed = settings.normalize is not None or settings.clip is not None
        keys = [*logs, *(["raw"] if self.changed else []), *(["open"] if self.gate else [])]
        self.logs = [f"{name}_{key}" for key in keys]

    async def measure(self, runs: Sequence[_Run]) -> None:
        """Give those runs a value whose gate is open."""
        runs = [run for run in runs if run.error is None and self.open(run)]
        if not runs:
            return
        measured = []
        for run, value in zip(runs, await self.source(runs), strict=True):
            if isinstance(value, Value) and math.isfinite(value.value):
                measured.append((run, value))
            else:
                run.error = self._unscored(value)
        numbers = self.normalizer([value.value for _, value in measured])
        for (run, value), number in zip(measured, numbers, strict=True):
            run.values[self.name] = self.clipped(number)
            found = {**value.logged, "raw": value.value, "open": 1.0}
            run.logged |= {f"{self.name}_{key}": float(number) for key, number in found.items()}
            run.notes |= {self.name: dict(value.notes)} if value.notes else {}

    def open(self, run: _Run) -> bool:
        """Whether the component counts, by what was measured before it."""
        return all(each.name in run.values and each.holds(run.values[each.name]) for each in self.gate)

    def clipped(self, value: float) -> float:
        low, high = self.settings.clip or (-math.inf, math.inf)
        return min(max(value, low), high) + 0.0

    def _unscored(self, found: Value | BaseException) -> UnscoredError:
        if isinstance(found, FatalError) or not isinstance(found, Value | Exception):
            raise found  # a wrong configuration, or a task that was cancelled
        if isinstance(found, Value):
            return UnscoredError(f"{self.name}: its value is {found.value}")
        error = UnscoredError(f"{self.name}: {_said(found)}")
        error.__cause__ = found
        return error


class _Rule:
    """The reward of one kind of data source."""

    def __init__(
        self,
        settings: RewardSettings,
        key: str,
        max_response_tokens: int | None,
        judged: bool,
        made: dict[str, Component | GroupComponent],
    ) -> None:
        def component(name: str, kind: str, config: Mapping[str, Any], where: str) -> Component | GroupComponent:
            same = f"{name} {kind} {config!r}"  # one for all rules that say the same of it
            if same not in made:
                made[same] = make_component(name, kind, config, where)
            return made[same]

        self.parts = _terms(settings, max_response_tokens)
        api = None
        if settings.reward_api is not None:
            config = {"url": settings.reward_api} if isinstance(settings.reward_api, str) else settings.reward_api
            api = component("correctness", "reward_api", config, f"{key}.reward_api")
        answers = Correctness(settings, key, api)
        self.answers = answers if judged or not answers.nothing else None
        if self.answers is not None:
            part = _Part("correctness", settings.correctness, _judging(answers), answers.logs, group=False)
            self.parts.insert(0, part)
        self.combine = combiner(settings, key)
        for name, its in settings.components.items():
            made_here = component(name, its.kind, its.config, f"{key}.components.{name}")
            group = isinstance(made_here, GroupComponent)
            source = _together(made_here) if isinstance(made_here, GroupComponent) else _singly(made_here.measure)
            self.parts.append(_Part(name, its, source, made_here.logs, group=group))
        self.waves = _waves(self.parts, key)


def _terms(settings: RewardSettings, max_response_tokens: int | None) -> list[_Part]:
    """The components that every reward has, but for `correctness`."""
    limit = terms.overlong_limit(settings.overlong, max_response_tokens)
    functions: dict[str, Callable[[Trajectory], float]] = {
        "efficiency": lambda trajectory: terms.efficiency(trajectory, settings.efficiency),
        "format": lambda trajectory: terms.format_term(trajectory, settings.format),
        "overlong": lambda trajectory: terms.overlong(trajectory, settings.overlong, limit),
    }
    return [
        _Part(name, getattr(settings, name), _pure(function), (), group=False) for name, function in functions.items()
    ]


def _waves(parts: Sequence[_Part], key: str) -> list[list[_Part]]:
    """The parts in an order in which each comes after what its gate asks for; the costly ones last.

    Raises:
        ConfigError: a gate asks for a component that there is not, or that waits for this one.
    """
    names = {part.name for part in parts}
    cheap = [part for part in parts if part.name in TERMS]
    waves: list[list[_Part]] = []
    done: set[str] = set()
    for rest in (cheap, [part for part in parts if part not in cheap]):
        while rest:
            wave = [part for part in rest if done.issuperset(each.name for each in part.gate)]
            if not wave:
                part = rest[0]
                missing = next(each.name for each in part.gate if each.name not in done)
                where = f"{key}.{'' if part.name in TERMS else 'components.'}{part.name}.gate"
                if missing not in names:
                    raise ConfigError(where, f"there is no component {missing!r}", did_you_mean(missing, names))
                raise ConfigError(where, f"{missing!r} is not measured before {part.name!r}", "Ask for another")
            waves.append(wave)
            done.update(part.name for part in wave)
            rest = [part for part in rest if part not in wave]
    return waves


def _pure(function: Callable[[Trajectory], float]) -> Source:
    async def source(runs: Sequence[_Run]) -> list[Value | BaseException]:
        return [Value(function(run.trajectory)) for run in runs]

    return source


def _judging(answers: Correctness) -> Source:
    async def source(runs: Sequence[_Run]) -> list[Value | BaseException]:
        works = (answers.measure(run.trajectory, run.verdict, run.row) for run in runs)
        return await asyncio.gather(*works, return_exceptions=True)

    return source


def _singly(measure: Callable[[Trajectory], Awaitable[Value]]) -> Source:
    async def source(runs: Sequence[_Run]) -> list[Value | BaseException]:
        return await asyncio.gather(*(measure(run.trajectory) for run in runs), return_exceptions=True)

    return source


def _together(component: GroupComponent) -> Source:
    async def source(runs: Sequence[_Run]) -> Sequence[Value | BaseException]:
        try:
            return await component.measure_group([run.trajectory for run in runs])
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's component raises: the group has no value
            return [error] * len(runs)

    return source


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


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, AgentRLError) else f"{type(error).__name__}: {error}"


def _step(trajectory: Trajectory) -> int | None:
    step = trajectory.info.get("step")
    return step if isinstance(step, int) else None
