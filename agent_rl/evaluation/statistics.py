"""Estimates with confidence intervals, over rows with several samples each.

Samples of one row are not independent, so errors are computed over rows (the clustered errors of Miller, "Adding Error
Bars to Evals", 2024). What this does not promise: an interval for fewer than two rows, or one that covers anything but
the choice of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

__all__ = ["LEVEL", "Estimate", "estimate_mean", "estimate_rate", "ks", "pass_at_k"]

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over rows, with its confidence interval."""

    mean: float
    low: float | None
    """None when there are too few rows to say."""
    high: float | None
    rows: int


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The probability that one of `k` of the row's samples is right: the unbiased estimate of Chen et al., 2021.

    Raises:
        ValueError: there are fewer than `k` samples.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(f"{right} right of {samples} samples, {k} of them")
    return 1.0 - math.prod((samples - right - i) / (samples - i) for i in range(k))


def ks(n: int) -> list[int]:
    """For which k a table shows pass@k: the powers of two up to `n`, and `n`."""
    return sorted({2**i for i in range(n.bit_length())} | {n})


def estimate_mean(rows: Sequence[Sequence[float]]) -> Estimate:
    """The mean of the rows' means; rows without values do not count."""
    means = [fmean(values) for values in rows if values]
    if not means:
        return Estimate(math.nan, None, None, 0)
    mean = fmean(means)
    if len(means) < 2:
        return Estimate(mean, None, None, len(means))
    half = _Z * stdev(means) / math.sqrt(len(means))
    return Estimate(mean, mean - half, mean + half, len(means))


def estimate_rate(rows: Sequence[Sequence[float]]) -> Estimate:
    """The mean of values from 0 to 1, with Wilson's interval: it stays within 0 and 1, even if all rows agree.

    The interval is that of as many independent rows as would have the observed error.
    """
    plain = estimate_mean(rows)
    if plain.low is None or plain.high is None:
        return plain
    rate, error = plain.mean, (plain.high - plain.low) / (2 * _Z)
    effective = rate * (1 - rate) / error**2 if error > 0 else plain.rows
    shrink = 1 + _Z**2 / effective
    centre = (rate + _Z**2 / (2 * effective)) / shrink
    half = _Z * math.sqrt(rate * (1 - rate) / effective + _Z**2 / (4 * effective**2)) / shrink
    return Estimate(rate, max(0.0, centre - half), min(1.0, centre + half), plain.rows)
