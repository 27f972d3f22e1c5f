"""Every scheme lets everybody play, nobody against itself, and no two twice; games become values."""

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_rl.rewards.judge.tournament import Scheme, bradley_terry, pairs_of


@pytest.mark.parametrize("players", [2, 3, 4, 5, 7, 8, 16])
@pytest.mark.parametrize("scheme", ["all", "round_robin"])
def test_every_sample_is_compared_and_no_pair_twice(scheme: Scheme, players: int) -> None:
    pairs = pairs_of(scheme, players)
    assert len(set(map(frozenset, pairs))) == len(pairs)
    assert all(len(set(pair)) == 2 for pair in pairs)
    assert {player for pair in pairs for player in pair} == set(range(players))


def test_in_a_round_robin_all_have_equally_many_opponents() -> None:
    pairs = pairs_of("round_robin", 9, opponents=4)
    assert set(Counter(player for pair in pairs for player in pair).values()) == {4}


def test_bradley_terry_by_hand() -> None:
    """Two players, one game: by symmetry the loser's strength is one by the winner's, whose points are as expected."""
    winner, loser, absent = bradley_terry([(0, 1, 1.0)], 3)
    assert absent is None
    assert winner is not None
    assert loser == pytest.approx(1 - winner, abs=1e-4)
    strength = winner / (1 - winner)
    assert strength / (strength + 1 / strength) + strength / (strength + 1) == pytest.approx(1.5, abs=1e-4)


def test_bradley_terry_finds_the_order_that_was_played() -> None:
    games = [(one, other, 1.0) for one, other in itertools.combinations(range(8), 2)]
    values = bradley_terry(games, 8)
    assert values == sorted(values, key=lambda value: -(value or 0))
    assert len({round(value or 0, 4) for value in values}) == 8


def test_a_win_over_a_winner_is_worth_more() -> None:
    games = [(0, 1, 1.0), (2, 3, 1.0), (1, 4, 1.0), (1, 5, 1.0), (1, 6, 1.0)]
    values = bradley_terry(games, 7)
    assert values[0] > values[2]  # type: ignore[operator]


results = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from([0.0, 0.5, 1.0])).filter(lambda it: it[0] != it[1]),
    max_size=40,
)


@settings(deadline=None)
@given(results)
def test_values_are_between_0_and_1_and_symmetric(found: list[tuple[int, int, float]]) -> None:
    mirrored = [(other, one, points) for one, other, points in found]
    for value, other in zip(bradley_terry(found, 8), bradley_terry(mirrored, 8), strict=True):
        assert (value is None) == (other is None)
        if value is not None:
            assert 0 <= value <= 1
            assert value + (other or 0) == pytest.approx(1, abs=1e-3)
