"""Tournaments: which trajectories of a group are compared, and how they are ranked by the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

__all__ = ["Game", "Pair", "Scheme", "bradley_terry", "pairs_of"]

Pair = tuple[int, int]
Scheme = Literal["all", "round_robin"]
_ITERATIONS = 500
_CONVERGED = 1e-7


@dataclass(frozen=True, slots=True)
class Game:
    """One comparison."""

    first: int
    second: int
    score: float
    """Of the first: 1 won, 0 lost, 0.5 a tie."""

    @property
    def points(self) -> dict[int, float]:
        """The score of each of the two."""
        return {self.first: self.score, self.second: 1.0 - self.score}


def pairs_of(scheme: Scheme, players: int, *, opponents: int = 4) -> list[Pair]:
    """The pairs that are compared.

    Args:
        scheme: `all` pairs; `round_robin`: each player meets about `opponents` others, its neighbours on a ring.
        players: how many.
        opponents: of each player in a `round_robin`, rounded up to an even number.
    """
    reach = players if scheme == "all" else math.ceil(opponents / 2)
    return [(a, b) for a, b in combinations(range(players), 2) if min(b - a, players - b + a) <= reach]


def bradley_terry(games: Sequence[Game], players: int) -> list[float | None]:
    """The probability of each player to beat one of average strength; None for a player without a game.

    Strengths by maximum likelihood (Hunter 2004, https://doi.org/10.1214/aos/1079120141, section 3). A tie
    with a player of strength 1 is added for each player, so that no strength is infinite and all are on one scale.
    """
    won, played = [0.0] * players, [0] * players
    for game in games:
        for player, points in game.points.items():
            won[player] += points
            played[player] += 1
    strengths = [1.0] * players
    for _ in range(_ITERATIONS):
        weights = [1.0 / (strength + 1.0) for strength in strengths]
        for game in games:
            share = 1.0 / (strengths[game.first] + strengths[game.second])
            weights[game.first] += share
            weights[game.second] += share
        updated = [(score + 0.5) / weight for score, weight in zip(won, weights, strict=True)]
        moved = max((abs(new - old) / old for new, old in zip(updated, strengths, strict=True)), default=0.0)
        strengths = updated
        if moved < _CONVERGED:
            break
    return [strength / (strength + 1.0) if count else None for strength, count in zip(strengths, played, strict=True)]
