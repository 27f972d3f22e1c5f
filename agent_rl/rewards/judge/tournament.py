"""Tournaments: which trajectories of a group are compared, and how they are ranked by the results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

__all__ = ["Game", "Pair", "Scheme", "bradley_terry", "rounds_of", "win_rates"]

Pair = tuple[int, int]
Scheme = Literal["all", "round_robin", "swiss", "elimination"]
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


def rounds_of(
    scheme: Scheme, players: int, games: Sequence[Game], *, opponents: int = 3, rounds: int | None = None
) -> Iterator[list[Pair]]:
    """The rounds of a scheme, each a list of pairs.

    Args:
        scheme: `all` pairs; `round_robin`: each player meets about `opponents` others; `swiss`: each of `rounds`
            pairs players with similar points that have not met yet; `elimination`: the loser of a pair is out.
        players: how many.
        games: the caller appends each round's games here before it takes the next round; a pair without a game has no
            result.
        opponents: of each player in a round robin, rounded up to an even number.
        rounds: of a Swiss tournament; None: as many as an elimination has.
    """
    if scheme == "elimination":
        yield from _elimination(players, games)
    elif scheme == "swiss":
        yield from _swiss(players, games, rounds or math.ceil(math.log2(max(2, players))))
    else:
        reach = players if scheme == "all" else math.ceil(opponents / 2)  # on a ring, each meets its neighbours
        yield [(a, b) for a, b in combinations(range(players), 2) if min(b - a, players - b + a) <= reach]


def _swiss(players: int, games: Sequence[Game], rounds: int) -> Iterator[list[Pair]]:
    met = set[Pair]()
    for _ in range(rounds):
        points, _ = _tallied(games, players)
        seen = Counter(
            player for pair in met for player in pair
        )  # a player without an opponent comes first in the next round
        waiting = sorted(range(players), key=lambda player: (-points[player], seen[player], player))
        pairs: list[Pair] = []
        while waiting:
            one = waiting.pop(0)
            fresh = (each for each in waiting if (min(one, each), max(one, each)) not in met)
            other = next(fresh, None)
            if other is not None:
                waiting.remove(other)
                pairs.append((min(one, other), max(one, other)))
        if not pairs:
            return
        met.update(pairs)
        yield pairs


def _elimination(players: int, games: Sequence[Game]) -> Iterator[list[Pair]]:
    left = list(range(players))
    while len(left) > 1:
        pairs = list(zip(left[::2], left[1::2], strict=False))
        yield pairs
        upsets = {(game.first, game.second) for game in games if game.score < 0.5}
        out = {pair[0] if pair in upsets else pair[1] for pair in pairs}
        left = [player for player in left if player not in out]


def win_rates(games: Sequence[Game], players: int) -> list[float | None]:
    """Each player's share of won games, a tie counting half; None for a player without a game."""
    won, played = _tallied(games, players)
    return [score / count if count else None for score, count in zip(won, played, strict=True)]


def bradley_terry(games: Sequence[Game], players: int) -> list[float | None]:
    """The probability of each player to beat one of average strength; None for a player without a game.

    Strengths by maximum likelihood (Hunter 2004, https://doi.org/10.1214/aos/1079120141, section 3). A tie
    with a player of strength 1 is added for each player, so that no strength is infinite and all are on one scale.
    """
    won, played = _tallied(games, players)
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


def _tallied(games: Sequence[Game], players: int) -> tuple[list[float], list[int]]:
    """Points and number of games of each player."""
    won, played = [0.0] * players, [0] * players
    for game in games:
        for player, points in game.points.items():
            won[player] += points
            played[player] += 1
    return won, played
