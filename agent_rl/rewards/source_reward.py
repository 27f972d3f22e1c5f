"""`SourceReward`: the reward for one data-source pattern, with its components in the order in which they are measured.

A `Term` is a component with its weight, gate, normalization and bounds. A `Measurement` collects the values of the
terms for one trajectory, and `compose` computes the total from these values with `SourceReward.combine`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import Any

from agent_rl.errors import ConfigError, UnscoredError, did_you_mean
from agent_rl.rewards.component import Component, GroupComponent, Value, as_value, make_component
from agent_rl.rewards.components import terms
from agent_rl.rewards.components.correctness import Correctness
from agent_rl.settings import TERMS, RewardSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.settings.reward import Normalization, TermSettings, parse_gate
from agent_rl.settings.user_code import sort_out
from agent_rl.trajectory import Trajectory


class SourceReward:
    """The reward for one data-source pattern.

    Args:
        settings: the `agent_rl.reward` section, with the overrides for these data sources.
        key: the configuration key of the settings, used in messages.
        max_response_tokens: see `Reward`.
        judged: whether the verdict on each trajectory comes from the caller or a custom function.
        shared: the components created so far; new ones are added, and equal configurations share one component.

    Attributes:
        settings, judged: the arguments of the same names.
        answers: the object that scores the answers; if None, answers are not scored.
        stops: whether an exception in user code stops the run.
    """

    def __init__(
        self,
        settings: RewardSettings,
        key: str,
        max_response_tokens: int | None,
        judged: bool,
        shared: dict[str, Component | GroupComponent],
    ) -> None:
        def component(name: str, kind: str, config: Mapping[str, Any], where: str) -> Component | GroupComponent:
            identity = f"{name} {kind} {config!r}"
            if identity not in shared:
                shared[identity] = make_component(name, kind, config, where)
            return shared[identity]

        self.settings, self.judged = settings, judged
        self.stops = settings.on_error == "stop"
        limit = terms.overlong_limit(settings.overlong, max_response_tokens)
        built_in: dict[str, Callable[[Trajectory], float]] = {
            "efficiency": lambda trajectory: terms.efficiency(trajectory, settings.efficiency),
            "format": lambda trajectory: terms.format_term(trajectory, settings.format),
            "overlong": lambda trajectory: terms.overlong(trajectory, settings.overlong, limit),
        }
        self.terms = [Term(name, getattr(settings, name), _BuiltIn(name, value)) for name, value in built_in.items()]
        api = None
        if settings.reward_api is not None:
            config = {"url": settings.reward_api} if isinstance(settings.reward_api, str) else settings.reward_api
            api = component("correctness", "reward_api", config, f"{key}.reward_api")
        answers = Correctness(settings, key, api)
        self.answers = answers if judged or not answers.nothing else None
        if self.answers is not None:
            self.terms.insert(0, Term("correctness", settings.correctness, answers, stops=self.stops))
        self.combine: Combiner = _sum
        if settings.combine != "sum":
            self.combine = find_object(settings.combine, Place(f"{key}.combine"))
            if not callable(self.combine):
                problem, remedy = f"{settings.combine!r} is not a function", "Set it to the name of a function"
                raise ConfigError(f"{key}.combine", problem, remedy)
        for name, entry in settings.components.items():
            own = component(name, entry.kind, entry.config, f"{key}.components.{name}")
            self.terms.append(Term(name, entry, own, stops=self.stops))
        self.waves = _waves(self.terms, key)


class _BuiltIn(Component):
    """A built-in component that depends only on the trajectory."""

    async def measure(self, trajectory: Trajectory) -> Value:
        return Value(self.config(trajectory))


@dataclass(slots=True)
class Measurement:
    """One trajectory, and the component values measured so far."""

    trajectory: Trajectory
    verdict: float | None = None
    values: dict[str, float] = field(default_factory=dict)
    logged: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    per_turn: dict[str, Sequence[float]] = field(default_factory=dict)
    """For each component, the part of its value that each turn earned."""
    error: Exception | None = None

    def __post_init__(self) -> None:
        try:
            terms.require_scorable(self.trajectory)
        except UnscoredError as error:
            self.error = error


class Term:
    """A component with its weight, gate, normalization and bounds.

    Args:
        name: the component's name.
        settings: the weight, gate, normalization and bounds.
        component: the component that measures the values.
        stops: whether an exception in the component stops the run.

    Attributes:
        is_additive: whether no gate, normalization or clipping applies, so that the parts per turn add up to the value.
    """

    def __init__(
        self,
        name: str,
        settings: TermSettings,
        component: Component | GroupComponent | Correctness,
        *,
        stops: bool = True,
    ) -> None:
        self.name, self.settings, self.component, self.stops = name, settings, component, stops
        code = component.measure_group if isinstance(component, GroupComponent) else component.measure
        self._code = None if isinstance(component, Correctness) else code
        self.gate = parse_gate(settings.gate)
        self.needs_groups = isinstance(component, GroupComponent) or settings.normalize == "group"
        changed = settings.normalize is not None or settings.clip is not None
        self.is_additive = not changed and not self.gate
        keys = [*component.logs, *(["raw"] if changed else []), *(["open"] if self.gate else [])]
        self.logs = [f"{name}_{key}" for key in keys]

    async def measure(self, measurements: Sequence[Measurement]) -> None:
        """Measure the trajectories for which the gate is open."""
        waiting = [measurement for measurement in measurements if measurement.error is None and self.open(measurement)]
        if not waiting:
            return
        valued = []
        for measurement, result in zip(waiting, await self._values(waiting), strict=True):
            try:
                value = as_value(result)
                if value.per_turn is not None and len(value.per_turn) != (turns := len(measurement.trajectory.turns)):
                    raise TypeError(f"the component returned {len(value.per_turn)} per_turn parts for {turns} turns")
                valued.append((measurement, value))
            except Exception as error:  # noqa: BLE001 - a user's component may raise anything; `sort_out` classifies it
                remedy = f"The trajectory is {measurement.trajectory.id!r}"
                measurement.error = sort_out(self.name, error, stops=self.stops, remedy=remedy, code=self._code)
        numbers = normalized(self.settings.normalize, [value.value for _, value in valued])
        low, high = self.settings.clip or (-math.inf, math.inf)
        for (measurement, value), number in zip(valued, numbers, strict=True):
            measurement.values[self.name] = min(max(number, low), high) + 0.0
            logged = {"raw": value.value, "open": 1.0, **value.logged}
            measurement.logged |= {f"{self.name}_{key}": number for key, number in logged.items()}
            measurement.notes |= {self.name: value.notes} if value.notes else {}
            if value.per_turn is not None and self.is_additive:
                measurement.per_turn[self.name] = value.per_turn

    async def _values(self, measurements: Sequence[Measurement]) -> Sequence[Value | BaseException]:
        """Return the component's value for each trajectory, or the exception that it raises."""
        component = self.component
        if not isinstance(component, GroupComponent):
            return await asyncio.gather(
                *(_measured(component, measurement) for measurement in measurements), return_exceptions=True
            )
        try:
            values = await component.measure_group([measurement.trajectory for measurement in measurements])
            if len(values) != len(measurements):
                raise TypeError(f"the component returned {len(values)} values for a group of {len(measurements)}")
        except Exception as error:  # noqa: BLE001 - a user's component may raise anything; the whole group fails
            return [error] * len(measurements)
        return values

    def open(self, measurement: Measurement) -> bool:
        """Whether the gate is open, given the values measured so far."""
        values = measurement.values
        return all(part.name in values and part.holds(values[part.name], part.number) for part in self.gate)


async def _measured(component: Component | Correctness, measurement: Measurement) -> Value:
    if isinstance(component, Correctness):
        return await component.measure(measurement.trajectory, measurement.verdict)
    return await component.measure(measurement.trajectory)


def _waves(terms: Sequence[Term], key: str) -> list[list[Term]]:
    """Group the terms into waves: a term comes after the components in its gate, and expensive terms come last.

    Raises:
        ConfigError: a gate refers to a component that does not exist or is measured later.
    """
    names = {term.name for term in terms}
    cheap = [term for term in terms if term.name in TERMS]
    waves: list[list[Term]] = []
    done: set[str] = set()
    for rest in (cheap, [term for term in terms if term not in cheap]):
        while rest:
            wave = [term for term in rest if done.issuperset(part.name for part in term.gate)]
            if not wave:
                term = rest[0]
                missing = next(part.name for part in term.gate if part.name not in done)
                where = f"{key}.{'' if term.name in TERMS else 'components.'}{term.name}.gate"
                problem, remedy = f"there is no component {missing!r}", did_you_mean(missing, names)
                if missing in names:
                    problem = f"{missing!r} is not measured before {term.name!r}"
                    remedy = "Use a component that is measured earlier"
                raise ConfigError(where, problem, remedy)
            waves.append(wave)
            done.update(term.name for term in wave)
            rest = [term for term in rest if term not in wave]
    return waves


Combiner = Callable[[Mapping[str, float], Mapping[str, float], Trajectory], float]
"""Computes the total from the measured values, their weights under the same names, and the trajectory."""


def _sum(values: Mapping[str, float], weights: Mapping[str, float], _: Trajectory) -> float:
    return math.fsum(weights[name] * value for name, value in values.items())


_LEAST_SPREAD = 1e-6
"""If a group's standard deviation is below this number, its z-scores are 0."""


def normalized(kind: Normalization | None, values: Sequence[float]) -> list[float]:
    """Scale the values of one prompt's samples as the `normalize` setting specifies."""
    if isinstance(kind, list):
        low, high = kind
        return [(value - low) / (high - low) for value in values]
    if kind == "group":
        mean, spread = (fmean(values), pstdev(values)) if values else (0.0, 0.0)
        return [(value - mean) / spread if spread > _LEAST_SPREAD else 0.0 for value in values]
    return list(values) if kind is None else [_FUNCTIONS[kind](value) for value in values]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


_FUNCTIONS = {"sigmoid": _sigmoid, "tanh": math.tanh}
