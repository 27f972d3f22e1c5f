"""`Normalizer`: puts a component's values on a common scale, before they are clipped and weighted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev

from agent_rl.settings.terms import Normalization

__all__ = ["Normalizer"]

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
