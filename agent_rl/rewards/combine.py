"""`Normalizer` and the combiners: from the values of components to one total, by `normalize` and `combine`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import fmean, pstdev

from agent_rl.errors import ConfigError
from agent_rl.settings import RewardSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.settings.terms import Normalization
from agent_rl.trajectory import Trajectory

__all__ = ["COMBINERS", "Combiner", "Normalizer", "combiner"]

Combiner = Callable[[Mapping[str, float], Mapping[str, float], Trajectory], float]
"""Takes the measured values, their weights under the same names, and the trajectory."""


def combiner(settings: RewardSettings, key: str) -> Combiner:
    """The function that `combine` names.

    Args:
        settings: of the reward.
        key: of the settings, for messages.

    Raises:
        ConfigError: it is neither a built-in nor a function that can be imported, or lexicographic names a component
            that does not exist or has no bounds.
    """
    if settings.combine == "lexicographic":
        return _lexicographic(settings, key)
    if settings.combine in COMBINERS:
        return COMBINERS[settings.combine]
    found = find_object(settings.combine, Place(f"{key}.combine"), known=[*COMBINERS, "lexicographic"])
    if not callable(found):
        raise ConfigError(f"{key}.combine", f"{settings.combine!r} is not a function", "Name a function")
    return found  # type: ignore[no-any-return]


def _weighed(reduce: Callable[[Iterable[float]], float], *, unweighed: bool = False) -> Combiner:
    """Reduce the values times their weights; without `unweighed`, those of weight 0 are left out."""

    def combine(values: Mapping[str, float], weights: Mapping[str, float], _: Trajectory) -> float:
        return reduce([weights[name] * value for name, value in values.items() if weights[name] or unweighed])

    return combine


COMBINERS: dict[str, Combiner] = {
    "sum": _weighed(math.fsum, unweighed=True),
    "product": _weighed(math.prod),
    "min": _weighed(partial(min, default=0.0)),
    "max": _weighed(partial(max, default=0.0)),
}
"""In all but the sum, a component of weight 0 is left out."""


def _lexicographic(settings: RewardSettings, key: str) -> Combiner:
    """Round each value to a level; the total in [0, 1) has these levels as its digits, the most important first."""
    order, levels = settings.lexicographic.order, settings.lexicographic.levels
    bounds = [_bounds(settings, name, f"{key}.lexicographic.order") for name in order]

    def combine(values: Mapping[str, float], _: Mapping[str, float], __: Trajectory) -> float:
        total, scale = 0.0, 1.0
        for name, (low, high) in zip(order, bounds, strict=True):
            scale /= levels + 1
            share = (min(max(values.get(name, low), low), high) - low) / (high - low)
            total += scale * round(share * levels)
        return total

    return combine


def _bounds(settings: RewardSettings, name: str, key: str) -> tuple[float, float]:
    natural = {"correctness": (0.0, 1.0), "efficiency": (settings.efficiency.floor, 0.0), "format": (-1.0, 0.0)}
    natural["overlong"] = (-settings.overlong.penalty, 0.0)
    term = settings.components.get(name) or getattr(settings, name if name in natural else "", None)
    if term is None:
        raise ConfigError(key, f"there is no component {name!r}", "Leave it out, or define it")
    if term.clip is not None:
        return term.clip[0], term.clip[1]
    if term.normalize in ("sigmoid", "tanh"):
        return (0.0 if term.normalize == "sigmoid" else -1.0), 1.0
    if name in natural and term.normalize is None and natural[name][0] < natural[name][1]:
        return natural[name]
    raise ConfigError(
        key, f"the values of {name!r} have no bounds", f"Give it `clip: [low, high]`, or leave {name} out"
    )


_LEAST_SPREAD = 1e-6
"""With a smaller standard deviation the z-score is 0."""


class Normalizer:
    """Applies a component's `normalize`, and keeps the running mean and variance.

    `running` uses the values that this process has measured: several processes have a mean each.
    """

    def __init__(self, kind: Normalization | None) -> None:
        self.kind = kind
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    def __call__(self, values: Sequence[float]) -> list[float]:
        """Normalize the values of one prompt's samples."""
        kind = self.kind
        if isinstance(kind, list):
            low, high = kind
            return [(value - low) / (high - low) for value in values]
        if kind == "group":
            mean, spread = (fmean(values), pstdev(values)) if values else (0.0, 0.0)
            return [_z_score(value, mean, spread) for value in values]
        functions = {"sigmoid": _sigmoid, "tanh": math.tanh, "running": self._running}
        return list(values) if kind is None else [functions[kind](value) for value in values]

    def _running(self, value: float) -> float:
        self._count += 1  # Welford's algorithm
        away = value - self._mean
        self._mean += away / self._count
        self._squares += away * (value - self._mean)
        return _z_score(value, self._mean, math.sqrt(self._squares / self._count))


def _z_score(value: float, mean: float, spread: float) -> float:
    return (value - mean) / spread if spread > _LEAST_SPREAD else 0.0


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
