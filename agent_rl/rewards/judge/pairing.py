"""Who is compared with whom: rounds of pairs, each of which may depend on how the earlier ones ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Sequence
from itertools import combinations
from typing import Literal

from agent_rl.rewards.judge.ranking import Game

__all__ = ["Pair", "Schedule", "Scheme", "scheduled"]

Pair = tuple[int, int]
Scheme = Literal["all", "round_robin", "swiss", "elimination"]
Schedule = Generator[list[Pair], Sequence[Game], None]
"""Yields a round's pairs and is sent the round's games; a pair of which nothing became has none."""


def scheduled(scheme: Scheme, players: int, *, opponents: int = 3, rounds: int | None = None) -> Schedule:
    """The rounds of a scheme.

    Args:
        scheme: `all` pairs; `round_robin`: each player meets about `opponents` others; `swiss`: in each of `rounds`,
            those with equally many points meet who have not met yet; `elimination`: who loses is out.
        players: how many.
        opponents: of each player in a round robin, rounded up to an even number.
        rounds: of a Swiss tournament; None: as many as an elimination would have.
    """
    if scheme == "elimination":
        return _elimination(players)
    if scheme == "swiss":
        return _swiss(players, math.ceil(math.log2(max(2, players))) if rounds is None else rounds)
    every = list(combinations(range(players), 2))
    return _at_once(every if scheme == "all" else _ring(every, players, opponents))


def _at_once(pairs: list[Pair]) -> Schedule:
    yield pairs


def _ring(every: list[Pair], players: int, opponents: int) -> list[Pair]:
    """On a ring, each meets its nearest neighbours."""
    reach = math.ceil(opponents / 2)
    return [(a, b) for a, b in every if min(b - a, players - b + a) <= reach]


def _swiss(players: int, rounds: int) -> Schedule:
    points, met = [0.0] * players, set[Pair]()
    for _ in range(rounds):
        seen = Counter(player for pair in met for player in pair)  # who had nobody to meet comes first the next time
        waiting = [player for _, _, player in sorted((-points[each], seen[each], each) for each in range(players))]
        pairs: list[Pair] = []
        while len(waiting) > 1:
            one = waiting.pop(0)
            fresh = (at for at, other in enumerate(waiting) if _ordered(one, other) not in met)
            at = next(fresh, None)
            if at is not None:
                pairs.append(_ordered(one, waiting.pop(at)))
        if not pairs:
            return
        met.update(pairs)
        for game in (yield pairs):
            points[game.first] += game.score
            points[game.second] += 1.0 - game.score


def _elimination(players: int) -> Schedule:
    left = list(range(players))
    while len(left) > 1:
        pairs = [(left[at], left[at + 1]) for at in range(0, len(left) - 1, 2)]
        games = yield pairs
        lost = {game.second if game.score >= 0.5 else game.first for game in games}
        unplayed = {second for _, second in pairs} - {player for game in games for player in (game.first, game.second)}
        left = [player for player in left if player not in lost | unplayed]


def _ordered(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)
