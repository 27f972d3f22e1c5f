"""Agreement of a judge with the truth: errors, correlations and measures of rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import StatisticsError, correlation

import numpy as np

__all__ = ["kendall_tau", "ndcg", "pearson", "spearman"]


def pearson(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The linear correlation; None where it is not defined (fewer than two values, or all equal)."""
    try:
        return max(-1.0, min(1.0, correlation(one, other)))
    except StatisticsError:
        return None


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The correlation of the ranks, equal values sharing theirs; None where it is not defined."""
    return pearson(_ranks(one), _ranks(other))


def kendall_tau(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Kendall's tau-b: pairs in the same order minus those in the opposite one, ties corrected; None if undefined.

    Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).
    """
    pairs = np.triu_indices(len(one), 1)
    left, right = (np.sign(np.subtract.outer(values, values)[pairs]) for values in (one, other))
    scale = math.sqrt(np.count_nonzero(left) * np.count_nonzero(right))
    return float(left @ right) / scale if scale else None


def ndcg(ranking: Sequence[int], gains: Sequence[float]) -> float:
    """The normalized discounted cumulative gain (Järvelin and Kekäläinen, 2002): 1 for the best order.

    Args:
        ranking: numbers of the answers, from 1, best first.
        gains: of each answer, at least 0; where all are 0, every order is the best.
    """
    best = _dcg(sorted(gains, reverse=True))
    return _dcg([gains[number - 1] for number in ranking]) / best if best else 1.0


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values have the mean of their ranks."""
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: list[float] = (np.cumsum(counts) - (counts - 1) / 2)[groups].tolist()
    return ranks
