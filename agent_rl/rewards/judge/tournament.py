"""Selects the pairs of a group's trajectories to compare, and ranks the trajectories by the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

Pair = tuple[int, int]
Game = tuple[int, int, float]
"""A comparison: two players, and the points of the first player (1 for a win, 0.5 for a tie, 0 for a loss)."""
Scheme = Literal["all", "round_robin"]
_ITERATIONS = 500
_CONVERGED = 1e-7


def pairs_of(scheme: Scheme, players: int, *, opponents: int = 4) -> list[Pair]:
    """Return the pairs to compare.

    Args:
        scheme: `all` for every pair, or `round_robin`, in which a player meets about `opponents` neighbors on a ring.
        players: number of players.
        opponents: number of opponents per player in a `round_robin`, rounded up to an even number.
    """
    reach = players if scheme == "all" else math.ceil(opponents / 2)
    return [(a, b) for a, b in combinations(range(players), 2) if min(b - a, players - b + a) <= reach]


def bradley_terry(games: Sequence[Game], players: int) -> list[float | None]:
    """Return each player's probability of beating a player of strength 1, or None for a player without games.

    Strengths are estimated by maximum likelihood (Hunter 2004, https://doi.org/10.1214/aos/1079120141, section 3). Each
    player also gets a tie with a player of strength 1, so that all strengths are finite and on one scale.
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
