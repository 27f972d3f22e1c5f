"""From won and lost comparisons to one value for each player, from 0 to 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Game", "bradley_terry", "win_rates"]

_ROUNDS = 500
_ENOUGH = 1e-7


@dataclass(frozen=True, slots=True)
class Game:
    """One comparison."""

    first: int
    second: int
    score: float
    """Of the first: 1 won, 0 lost, 0.5 a tie."""

    def has(self, player: int) -> bool:
        """Whether it was one of the two."""
        return player in (self.first, self.second)

    def points_of(self, player: int) -> float:
        """The score of one of the two."""
        return self.score if player == self.first else 1.0 - self.score


def win_rates(games: Sequence[Game], players: int) -> list[float | None]:
    """Each player's share of won games, a tie being half of one; None for a player without a game."""
    won, played = _tallied(games, players)
    return [score / count if count else None for score, count in zip(won, played, strict=True)]


def bradley_terry(games: Sequence[Game], players: int) -> list[float | None]:
    """The chance of each player to beat one of average strength; None for a player without a game.

    Strengths by maximum likelihood (Hunter 2004, https://doi.org/10.1214/aos/1079120141, section 3). Each player has
    also tied once with a player of strength 1, so that nobody's strength is infinite and all are on one scale.
    """
    won, played = _tallied(games, players)
    strengths = [1.0] * players
    for _ in range(_ROUNDS):
        weights = [1.0 / (strength + 1.0) for strength in strengths]
        for game in games:
            share = 1.0 / (strengths[game.first] + strengths[game.second])
            weights[game.first] += share
            weights[game.second] += share
        updated = [(score + 0.5) / weight for score, weight in zip(won, weights, strict=True)]
        moved = max((abs(new - old) / old for new, old in zip(updated, strengths, strict=True)), default=0.0)
        strengths = updated
        if moved < _ENOUGH:
            break
    return [strength / (strength + 1.0) if count else None for strength, count in zip(strengths, played, strict=True)]


def _tallied(games: Sequence[Game], players: int) -> tuple[list[float], list[int]]:
    """Points and number of games of each player."""
    won, played = [0.0] * players, [0] * players
    for game in games:
        won[game.first] += game.score
        won[game.second] += 1.0 - game.score
        played[game.first] += 1
        played[game.second] += 1
    return won, played
