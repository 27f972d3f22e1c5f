"""Correlations of a judge's scores with the true ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import StatisticsError, correlation

import numpy as np

__all__ = ["pearson", "spearman"]


def pearson(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The linear correlation; None where it is not defined (fewer than two values, or all equal)."""
    try:
        return max(-1.0, min(1.0, correlation(one, other)))
    except StatisticsError:
        return None


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The correlation of the ranks, equal values sharing theirs; None where it is not defined."""
    return pearson(_ranks(one), _ranks(other))


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values have the mean of their ranks."""
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: list[float] = (np.cumsum(counts) - (counts - 1) / 2)[groups].tolist()
    return ranks
