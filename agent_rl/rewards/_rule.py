"""The reward of one kind of data source: its components in the order in which they are measured.

What the components of a trajectory's reward come to is written down on a `Run`; `compose` makes the total of it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_rl.errors import AgentRLError, ConfigError, FatalError, UnscoredError, did_you_mean
from agent_rl.rewards.combine import combiner
from agent_rl.rewards.component import Component, GroupComponent, Value
from agent_rl.rewards.components import terms
from agent_rl.rewards.components.correctness import Correctness
from agent_rl.rewards.kinds import make_component
from agent_rl.rewards.normalize import Normalizer
from agent_rl.settings import TERMS, RewardSettings
from agent_rl.settings.reward import TermSettings, parse_gate
from agent_rl.trajectory import Trajectory

__all__ = ["Part", "Rule", "Run"]


class Rule:
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
            part = Part("correctness", settings.correctness, _judging(answers), answers.logs, group=False)
            self.parts.insert(0, part)
        self.combine = combiner(settings, key)
        for name, its in settings.components.items():
            made_here = component(name, its.kind, its.config, f"{key}.components.{name}")
            group = isinstance(made_here, GroupComponent)
            source = _together(made_here) if isinstance(made_here, GroupComponent) else _singly(made_here.measure)
            self.parts.append(Part(name, its, source, made_here.logs, group=group))
        self.waves = _waves(self.parts, key)


@dataclass(slots=True)
class Run:
    """One trajectory on its way to a score."""

    trajectory: Trajectory
    verdict: float | None = None
    row: Mapping[str, Any] | None = None
    values: dict[str, float] = field(default_factory=dict)
    logged: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    error: Exception | None = None

    def __post_init__(self) -> None:
        try:
            terms.require_scorable(self.trajectory)
        except UnscoredError as error:
            self.error = error


Source = Callable[[Sequence[Run]], Awaitable[Sequence[Value | BaseException]]]
"""Measures runs; an exception instead of a value where one has none."""


class Part:
    """A component as one rule has it."""

    def __init__(self, name: str, settings: TermSettings, source: Source, logs: Iterable[str], *, group: bool) -> None:
        self.name, self.settings, self.source = name, settings, source
        self.gate = parse_gate(settings.gate)
        self.normalizer = Normalizer(settings.normalize)
        self.needs_groups = group or settings.normalize == "group"
        self.changed = settings.normalize is not None or settings.clip is not None
        keys = [*logs, *(["raw"] if self.changed else []), *(["open"] if self.gate else [])]
        self.logs = [f"{name}_{key}" for key in keys]

    async def measure(self, runs: Sequence[Run]) -> None:
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

    def open(self, run: Run) -> bool:
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


def _terms(settings: RewardSettings, max_response_tokens: int | None) -> list[Part]:
    """The components that every reward has, but for `correctness`."""
    limit = terms.overlong_limit(settings.overlong, max_response_tokens)
    functions: dict[str, Callable[[Trajectory], float]] = {
        "efficiency": lambda trajectory: terms.efficiency(trajectory, settings.efficiency),
        "format": lambda trajectory: terms.format_term(trajectory, settings.format),
        "overlong": lambda trajectory: terms.overlong(trajectory, settings.overlong, limit),
    }
    return [
        Part(name, getattr(settings, name), _pure(function), (), group=False) for name, function in functions.items()
    ]


def _waves(parts: Sequence[Part], key: str) -> list[list[Part]]:
    """The parts in an order in which each comes after what its gate asks for; the costly ones last.

    Raises:
        ConfigError: a gate asks for a component that there is not, or that waits for this one.
    """
    names = {part.name for part in parts}
    cheap = [part for part in parts if part.name in TERMS]
    waves: list[list[Part]] = []
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
    async def source(runs: Sequence[Run]) -> list[Value | BaseException]:
        return [Value(function(run.trajectory)) for run in runs]

    return source


def _judging(answers: Correctness) -> Source:
    async def source(runs: Sequence[Run]) -> list[Value | BaseException]:
        works = (answers.measure(run.trajectory, run.verdict, run.row) for run in runs)
        return await asyncio.gather(*works, return_exceptions=True)

    return source


def _singly(measure: Callable[[Trajectory], Awaitable[Value]]) -> Source:
    async def source(runs: Sequence[Run]) -> list[Value | BaseException]:
        return await asyncio.gather(*(measure(run.trajectory) for run in runs), return_exceptions=True)

    return source


def _together(component: GroupComponent) -> Source:
    async def source(runs: Sequence[Run]) -> Sequence[Value | BaseException]:
        try:
            return await component.measure_group([run.trajectory for run in runs])
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a user's component raises: the group has no value
            return [error] * len(runs)

    return source


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, AgentRLError) else f"{type(error).__name__}: {error}"
