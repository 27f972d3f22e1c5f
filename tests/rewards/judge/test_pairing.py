"""Every scheme lets everybody play, nobody against itself, and no two twice."""

from collections import Counter
from collections.abc import Callable

import pytest

from agent_rl.rewards.judge.pairing import Pair, Scheme, scheduled
from agent_rl.rewards.judge.ranking import Game

Play = Callable[[Pair], Game | None]


def better_is_lower(pair: Pair) -> Game:
    return Game(*pair, 1.0 if pair[0] < pair[1] else 0.0)


def played(scheme: Scheme, players: int, play: Play = better_is_lower, **options: int) -> list[list[Pair]]:
    schedule, rounds = scheduled(scheme, players, **options), []
    try:
        pairs = next(schedule)
        while True:
            rounds.append(pairs)
            pairs = schedule.send([game for game in map(play, pairs) if game is not None])
    except StopIteration:
        return rounds


@pytest.mark.parametrize("players", [2, 3, 4, 5, 7, 8, 16])
@pytest.mark.parametrize("scheme", ["all", "round_robin", "swiss", "elimination"])
def test_everybody_plays(scheme: Scheme, players: int) -> None:
    rounds = played(scheme, players)
    pairs = [pair for each in rounds for pair in each]
    assert len(set(map(frozenset, pairs))) == len(pairs)
    assert all(len(set(pair)) == 2 for pair in pairs)
    assert {player for pair in pairs for player in pair} == set(range(players))
    for each in rounds:
        if scheme in ("swiss", "elimination"):
            assert max(Counter(player for pair in each for player in pair).values()) == 1


def test_numbers_of_pairs() -> None:
    def pairs(scheme: Scheme, **options: int) -> list[int]:
        return [len(each) for each in played(scheme, 8, **options)]

    assert pairs("all") == [28]
    assert pairs("round_robin", opponents=4) == pairs("round_robin", opponents=3) == [16]
    assert pairs("round_robin", opponents=100) == [28]
    assert pairs("swiss") == [4, 4, 4]
    assert len(pairs("swiss", rounds=5)) == 5
    assert pairs("elimination") == [4, 2, 1]


def test_in_a_round_robin_all_meet_as_many() -> None:
    (pairs,) = played("round_robin", 9, opponents=4)
    assert set(Counter(player for pair in pairs for player in pair).values()) == {4}


def test_winners_meet_winners() -> None:
    assert played("elimination", 5) == [[(0, 1), (2, 3)], [(0, 2)], [(0, 4)]]
    assert played("swiss", 4) == [[(0, 1), (2, 3)], [(0, 2), (1, 3)]]


def test_a_pair_of_which_nothing_became() -> None:
    assert played("elimination", 4, lambda pair: None) == [[(0, 1), (2, 3)], [(0, 2)]]
    assert len(played("swiss", 4, lambda pair: None)) == 2


def test_a_swiss_tournament_ends_when_all_have_met() -> None:
    assert len(played("swiss", 3, rounds=20)) <= 4
