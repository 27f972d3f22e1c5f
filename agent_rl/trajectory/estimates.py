"""Means over rows with 95% confidence intervals.

Samples of one row are not independent, so standard errors are computed over rows (clustered, as in Miller, "Adding
Error Bars to Evals", 2024). A mean over fewer than two rows has no interval. The intervals cover only the random choice
of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, stdev
from typing import Any

LEVEL = 0.95
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over rows, with its confidence interval."""

    mean: float
    low: float | None
    """Lower end of the interval, or None if there are fewer than two rows."""
    high: float | None
    rows: int

    def plain(self, digits: int = 6) -> dict[str, Any]:
        """Return JSON data with rounded numbers; undefined numbers are None."""
        return {
            name: None if value is None or math.isnan(value) else round(value, digits)
            for name, value in asdict(self).items()
        }


def estimate_mean(rows: Sequence[Sequence[float]]) -> Estimate:
    """Estimate the mean of the rows' means; rows without values are ignored."""
    means = [fmean(values) for values in rows if values]
    if not means:
        return Estimate(math.nan, None, None, 0)
    mean = fmean(means)
    if len(means) < 2:
        return Estimate(mean, None, None, len(means))
    half = _Z * stdev(means) / math.sqrt(len(means))
    return Estimate(mean, mean - half, mean + half, len(means))


def estimate_rate(rows: Sequence[Sequence[float]]) -> Estimate:
    """Estimate the mean of values from 0 to 1 with Wilson's interval, which always stays within that range.

    The interval is computed for the number of independent values that would produce the observed standard error.
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


@dataclass(frozen=True, slots=True)
class Change:
    """The difference between two sides on the same rows, with its confidence interval and a sign test over the rows."""

    difference: Estimate
    better: int
    """Number of rows whose mean is higher on the second side."""
    worse: int
    p: float
    """The probability of a split at least this uneven if neither side were better; ties are ignored."""


def estimate_change(pairs: Sequence[tuple[float, float]]) -> Change:
    """Compare two sides on the same rows; each pair contains the means `(first, second)` of one row."""
    differences = [second - first for first, second in pairs]
    better, worse = (sum(sign * value > 0 for value in differences) for sign in (1, -1))
    return Change(estimate_mean([[value] for value in differences]), better, worse, _sign_test(better, worse))


def _sign_test(better: int, worse: int) -> float:
    """Return the two-sided p-value, which is approximated by a normal distribution for more than 1,000 rows."""
    rows, least = better + worse, min(better, worse)
    if rows > 1000:
        return min(1.0, 2 * NormalDist(rows / 2, math.sqrt(rows) / 2).cdf(least + 0.5))
    return min(1.0, sum(math.comb(rows, count) for count in range(least + 1)) / float(2 ** max(0, rows - 1)))
