"""The objectives of advantage estimators: each is the mean of a function of a group's rewards.

Every objective is divided by the number of samples, so that its exact gradient is a per-sample gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any

from agent_rl.verl_adapter.algorithms import gigpo, maxrl


@dataclass(frozen=True)
class Objective:
    """A formula whose gradient an estimator claims to compute.

    Attributes:
        formula: the objective of a prompt as a readable formula.
        of_group: returns the objective's value per sample, given the rewards of the trained members and the group size.
        needs_two_levels: whether the objective exists only if every reward is 0 or 1.
    """

    formula: str
    of_group: Callable[[Sequence[float], int], float]
    needs_two_levels: bool = False


RETURN = Objective("E[R]", lambda rewards, n: sum(rewards) / n)
BEST = Objective("E[max of n]", lambda rewards, n: max(rewards) / n)


def relative_to_group(formula: str, scale: Callable[[int, int], float]) -> Objective:
    """Return the objective of advantages `(R - group mean) / scale`, for rewards 0 and 1.

    The mean gradient is the gradient of the success rate p, times a polynomial in p in Bernstein form. The integral of
    this polynomial is the mean of a function of k, the number of successes among n samples.

    Args:
        formula: the objective for many samples.
        scale: returns the divisor for k successes among n samples, for 0 < k < n.
    """

    @cache
    def steps(n: int) -> list[float]:
        """Return the differences between the function's values at k and k + 1."""
        weights = [0.0, *((n - 1) / (n * scale(k, n)) for k in range(1, n)), 0.0]
        return [((n - 1 - k) * weights[k + 1] + k * weights[k]) / (n * (n - 1)) for k in range(n)]

    def of_group(rewards: Sequence[float], n: int) -> float:
        members = len(rewards)
        return sum(steps(members)[: round(sum(rewards))]) * members / n

    return Objective(formula, of_group, needs_two_levels=True)


def deviation(k: int, n: int) -> float:
    """Return the standard deviation of k ones and n - k zeros, as verl computes it."""
    return sqrt(k * (n - k) / (n * (n - 1))) + gigpo.EPSILON


DEVIATIONS = relative_to_group("2 arcsin sqrt p (n to infinity)", deviation)
LIKELIHOOD = relative_to_group("log p (n to infinity)", lambda k, n: k / n)
HEURISTIC = ("gdpo", gigpo.ESTIMATOR)
"""Estimators whose mean gradient is not the gradient of any objective."""


def declared(estimator: Any, divides_by_std: bool) -> Objective | None:
    """Return the objective that an estimator declares, or None for a heuristic.

    Args:
        estimator: `algorithm.adv_estimator`, or a user's function; estimators that are not named in this module
            declare the expected return.
        divides_by_std: `algorithm.norm_adv_by_std_in_grpo`.
    """
    if estimator in ("grpo", "grpo_vectorized"):
        return DEVIATIONS if divides_by_std else RETURN
    if estimator == maxrl.ESTIMATOR:
        return LIKELIHOOD
    if estimator == "grpo_passk":
        return None if divides_by_std else BEST
    return None if estimator in HEURISTIC else RETURN
