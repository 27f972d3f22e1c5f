"""From the values of components to one total, by `normalize` and `combine`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev

from agent_rl.errors import ConfigError
from agent_rl.settings import RewardSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.settings.terms import Normalization
from agent_rl.trajectory import Trajectory

__all__ = ["Combiner", "combiner", "normalized"]

Combiner = Callable[[Mapping[str, float], Mapping[str, float], Trajectory], float]
"""Takes the measured values, their weights under the same names, and the trajectory."""


def combiner(settings: RewardSettings, key: str) -> Combiner:
    """The function that `combine` names.

    Args:
        settings: of the reward.
        key: of the settings, for messages.

    Raises:
        ConfigError: it is neither `sum` nor a function that can be imported.
    """
    if settings.combine == "sum":
        return _sum
    found = find_object(settings.combine, Place(f"{key}.combine"))
    if not callable(found):
        raise ConfigError(f"{key}.combine", f"{settings.combine!r} is not a function", "Name a function")
    return found  # type: ignore[no-any-return]


def _sum(values: Mapping[str, float], weights: Mapping[str, float], _: Trajectory) -> float:
    return math.fsum(weights[name] * value for name, value in values.items())


_LEAST_SPREAD = 1e-6
"""With a smaller standard deviation the z-score is 0."""


def normalized(kind: Normalization | None, values: Sequence[float]) -> list[float]:
    """The values of one prompt's samples, scaled as `normalize` says."""
    if isinstance(kind, list):
        low, high = kind
        return [(value - low) / (high - low) for value in values]
    if kind == "group":
        mean, spread = (fmean(values), pstdev(values)) if values else (0.0, 0.0)
        return [_z_score(value, mean, spread) for value in values]
    return list(values) if kind is None else [_FUNCTIONS[kind](value) for value in values]


def _z_score(value: float, mean: float, spread: float) -> float:
    return (value - mean) / spread if spread > _LEAST_SPREAD else 0.0


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


_FUNCTIONS = {"sigmoid": _sigmoid, "tanh": math.tanh}
