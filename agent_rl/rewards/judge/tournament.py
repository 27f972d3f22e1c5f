"""Tournaments: which trajectories of a group are compared, and how they are ranked by the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

__all__ = ["Game", "Pair", "Scheme", "bradley_terry", "pairs_of"]

Pair = tuple[int, int]
Game = tuple[int, int, float]
"""A comparison: two players, and the points of the first: 1 won, 0 lost, 0.5 a tie."""
Scheme = Literal["all", "round_robin"]
_ITERATIONS = 500
_CONVERGED = 1e-7


def pairs_of(scheme: Scheme, players: int, *, opponents: int = 4) -> list[Pair]:
    """Return the pairs to compare.

    Args:
        scheme: `all` pairs; `round_robin`: each player meets about `opponents` others, its neighbours on a ring.
        players: number of players.
        opponents: opponents per player in a `round_robin`, rounded up to an even number.
    """
    reach = players if scheme == "all" else math.ceil(opponents / 2)
    return [(a, b) for a, b in combinations(range(players), 2) if min(b - a, players - b + a) <= reach]


def bradley_terry(games: Sequence[Game], players: int) -> list[float | None]:
    """Return each player's probability of beating an average player; None for a player without a game.

    Strengths by maximum likelihood (Hunter 2004, https://doi.org/10.1214/aos/1079120141, section 3). A tie
    with a player of strength 1 is added for each player, so that no strength is infinite and all are on one scale.
    """
    won, played = [0.0] * players, [0] * players
    for one, other, points in games:
        for player, share in ((one, points), (other, 1.0 - points)):
            won[player] += share
            played[player] += 1
    strengths = [1.0] * players
    for _ in range(_ITERATIONS):
        weights = [1.0 / (strength + 1.0) for strength in strengths]
        for one, other, _ in games:
            share = 1.0 / (strengths[one] + strengths[other])
            weights[one] += share
            weights[other] += share
        updated = [(score + 0.5) / weight for score, weight in zip(won, weights, strict=True)]
        moved = max((abs(new - old) / old for new, old in zip(updated, strengths, strict=True)), default=0.0)
        strengths = updated
        if moved < _CONVERGED:
            break
    return [strength / (strength + 1.0) if count else None for strength, count in zip(strengths, played, strict=True)]
