"""The order of rows: shares, passes, curriculum, replay; the same after a kill at any point."""

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

from agent_rl.data.order import RowFacts, RowOrder, hashed
from agent_rl.data.shares import shares as shares_of
from agent_rl.errors import ConfigError, FatalError
from tests.data.scripted import ROWS, Run, order, settings, shares

COUNTS = {"a": 1, "b": 9}
ROOTS = [rows**0.5 for rows in (23, 17, 11)]
AHEAD = 24
"""Events after a kill that are compared; after them the state is that of a later kill."""
EASY = {row for row, difficulty in enumerate(ROWS.difficulties) if difficulty is not None and difficulty <= 0.5}


def draws(order: RowOrder, count: int) -> list[int]:
    return [order.next() for _ in range(count)]


def plain(**keys: Any) -> RowOrder:
    return order(settings=settings(**keys))


def test_a_run_killed_at_1000_points_goes_on_with_the_same_draws() -> None:
    """Each state is that of another process: pickled, and loaded into an order that has just been made."""
    whole = order()
    run = Run(whole, lambda: [whole.next()])
    saved: list[tuple[bytes, list[int], int, int]] = []
    for _ in range(1_000):
        saved.append((pickle.dumps(whole.state()), list(run.waiting), run.step, len(run.drawn)))
        run.event()
    for _ in range(AHEAD):
        run.event()
    states = [state for state, *_ in saved]
    assert pickle.loads(states[-1])["progress"]["stage"] == 2  # every stage has been seen
    for place, (state, waiting, step, count) in enumerate(saved):
        other = order(seed=99)  # the state has the seed
        other.load(pickle.loads(state))
        again = Run(other, lambda other=other: [other.next()], waiting=waiting, step=step)
        for _ in range(AHEAD):
            again.event()
        assert again.drawn == run.drawn[count : count + len(again.drawn)]
        if place + AHEAD < len(states):
            assert other.state() == pickle.loads(states[place + AHEAD])  # and so on to the end


def test_the_hash_is_the_same_everywhere() -> None:
    """Fixed values: a checkpoint goes on under another release of Python and numpy."""
    fixed = [5614166475902949607, 12645122886370698591, 8635780112177960683]
    assert hashed("1/pass/a/0", np.arange(3)).tolist() == fixed


def test_each_pass_has_every_row_once_and_another_order() -> None:
    one = plain(order="shuffled")
    first, second = draws(one, 51), draws(one, 51)
    assert sorted(first) == sorted(second) == list(range(51))
    assert first != second
    assert first == draws(plain(order="shuffled"), 51)
    assert first != draws(order(settings=settings(order="shuffled"), seed=2), 51)


def test_file_order_and_difficulty_order() -> None:
    rows = RowFacts(["a", "b"] * 3, [3, 1, 1, 3, 2, 2])
    in_file = RowOrder(rows, settings(order="file"), 0)
    assert sorted(draws(in_file, 6)[:2]) == [0, 1]
    assert [row for row in draws(in_file, 6) if row % 2 == 0] == [0, 2, 4]
    drawn = draws(RowOrder(rows, settings(order="difficulty"), 0), 6)
    assert [row for row in drawn if row % 2 == 0] == [2, 4, 0]
    assert [row for row in drawn if row % 2 == 1] == [1, 5, 3]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"weights": {"math/easy": 0.5, "math/hard": 0.3, "tools": 0.2}}, [0.5, 0.3, 0.2]),
        ({"weights": {"math/*": 1, "math/hard": 2, "*": 0}}, [1 / 3, 2 / 3, 0]),
        ({"weights": [4, 1]}, [0.8 * 23 / 40, 0.8 * 17 / 40, 0.2]),
        ({"temperature": 1}, [23 / 51, 17 / 51, 11 / 51]),
        ({"temperature": 2}, [root / sum(ROOTS) for root in ROOTS]),
        ({"temperature": 1e9}, [1 / 3, 1 / 3, 1 / 3]),
        ({"order": "shuffled"}, [23 / 51, 17 / 51, 11 / 51]),
    ],
)
def test_shares_are_exact(keys: dict[str, Any], expected: list[float]) -> None:
    drawn = draws(plain(**keys), 1_000)
    for end in (100, 1_000):
        for share, wanted in zip(shares(drawn[:end]).values(), expected, strict=True):
            assert abs(share - wanted) * end <= 1 + 1e-9, (end, shares(drawn[:end]))


def test_stages_end_at_a_step_or_at_a_reward() -> None:
    one = plain(
        stages=[
            {"until_step": 2, "difficulty": [0, 0.5], "weights": {"tools": 1, "*": 0}},
            {"until_reward": 0.8, "over_steps": 2, "difficulty": [0, 0.5]},
            {},
        ]
    )
    assert {ROWS.sources[row] for row in draws(one, 20)} == {"tools"}
    one.report(1, [(40, 1.0)])
    one.report(2, [(40, 1.0)])
    assert one.metrics()["data/stage"] == 2
    assert set(draws(one, 200)) == EASY  # also of sources that had no weight before
    one.report(3, [(1, 1.0)])
    one.report(4, [(1, 0.5)])
    assert one.metrics()["data/stage"] == 2  # 0.75, and a single step of 1.0 is too few
    one.report(5, [(1, 1.0), (2, 1.0), (3, 1.0)])
    assert one.metrics()["data/stage"] == 2
    one.report(6, [(1, 0.7)])
    assert one.metrics()["data/stage"] == 3
    assert set(draws(one, 102)) == set(range(51))


def test_a_band_draws_what_is_neither_too_easy_nor_too_hard_and_explores() -> None:
    one = plain(band={"low": 0.2, "high": 0.8, "explore": 0.1})
    one.report(1, [(row, row % 3 / 2) for row in range(51)])
    drawn = Counter(draws(one, 1_700))
    inside = [drawn[row] for row in range(51) if row % 3 == 1]
    outside = [drawn[row] for row in range(51) if row % 3 != 1]
    assert min(inside) >= 60
    assert 0 < sum(outside) / len(outside) < 0.2 * sum(inside) / len(inside)
    one.report(2, [(row, 0.0) for row in range(51) if row % 3 == 1])
    assert one.metrics()["data/in_band"] == 17  # half of the rate is the earlier visit's
    one.report(3, [(row, 0.0) for row in range(51) if row % 3 == 1])
    assert one.metrics()["data/in_band"] == 0
    assert set(draws(one, 200)) == set(range(51))  # a band without rows does not stop the run, nor repeat a few


def test_solved_and_hopeless_rows_are_dropped_after_visits_in_a_row() -> None:
    one = plain(drop={"solved_after": 2, "hopeless_after": 3})
    for step, (solved, hopeless, mixed) in enumerate([(1, 0, 1), (1, 0, 0), (0.5, 0, 1)], 1):
        one.report(step, [(0, solved), (1, hopeless), (2, mixed)])
    assert one.metrics()["data/dropped"] == 1  # row 0 was solved twice, but then no more
    assert set(draws(one, 150)) == set(range(51)) - {1}


def test_a_run_without_rows_left_says_so() -> None:
    one = RowOrder(RowFacts(["a", "a"], [None, None]), settings(drop={"solved_after": 1}), 0)
    one.report(1, [(0, 1.0), (1, 1.0)])
    with pytest.raises(FatalError, match=r"agent_rl\.data\.drop: no row is left to draw"):
        one.next()


def test_failed_rows_come_again_before_the_next_pass_and_within_their_share() -> None:
    one = plain(replay={"share": 0.25, "below": 0.5})
    first = draws(one, 8)
    one.report(1, [(row, float(number % 2)) for number, row in enumerate(first)])
    failed = sorted(first[::2])
    drawn = draws(one, 40)
    again = [(place, row) for place, row in enumerate(drawn) if row in failed]
    assert [row for _, row in again[:4]] == failed
    assert all(place % 4 == again[0][0] % 4 for place, _ in again[:4])
    assert one.metrics()["data/to_replay"] == 0


def test_a_rate_is_half_the_latest_visit() -> None:
    one = RowOrder(RowFacts(["a", "a"], [None, None]), settings(band={"low": 0.3, "high": 0.6}))
    counts = {"data/rows": 2, "data/visited": 0, "data/in_band": 0, "data/stage": 1}
    assert one.metrics() == counts
    for step, (rate, in_band) in enumerate([(1.0, 0), (0.0, 1)]):
        one.report(step, [(0, rate)])
        assert one.metrics() == {**counts, "data/visited": 1, "data/in_band": in_band}


def test_a_file_shares_its_weight_among_its_sources_and_rows_left_out_do_not_count() -> None:
    files = [("x", ["a", "b", "gone"]), ("y", ["gone too"])]
    assert shares_of(COUNTS, [2, 5], None, files, "w") == [0.1, 0.9]


def test_a_checkpoint_of_other_rows_is_refused_by_name() -> None:
    state = order().state()
    other = RowFacts(ROWS.sources[1:], ROWS.difficulties[1:], [("new.parquet", [])], "others")
    with pytest.raises(ConfigError, match=r"new\.parquet: these 50 rows.*51.*math\.parquet, tools\.parquet"):
        order(other, settings(order="shuffled")).load(state)
    with pytest.raises(ConfigError, match="saved with verl's own row order"):
        order().load({"yielded": 3, "generator": None})


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"weights": {"math/*": 1}}, r"agent_rl\.data\.weights: the data source 'tools' has no weight.*: WEIGHT"),
        ({"weights": {"*": 1, "tool": 1}}, r"agent_rl\.data\.weights\.tool: no row.*Did you mean 'tools'"),
        ({"weights": {"*": 0}}, r"agent_rl\.data\.weights: no source has a weight above 0"),
        ({"weights": [1, 2, 3]}, r"3 weights for 2 data\.train_files"),
        ({"stages": [{"until_step": 1, "weights": {"x": 1}}, {}]}, r"stages\[0\]\.weights\.x"),
        ({"stages": [{"difficulty": [2, 3]}]}, r"stages\[0\]\.difficulty: no row.*from 2 to 3.*overlaps 0 to 0\.9"),
    ],
)
def test_settings_that_do_not_fit_the_rows_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plain(**keys)


def test_a_source_with_brackets_in_its_name_may_have_a_weight() -> None:
    rows = RowFacts(["math[hard]", "tools"], [None, None])
    drawn = draws(RowOrder(rows, settings(weights={"math[hard]": 3, "tools": 1})), 8)
    assert shares(drawn, rows) == {"math[hard]": 0.75, "tools": 0.25}


def test_rows_without_a_difficulty_and_files_with_the_same_source_are_named() -> None:
    rows = RowFacts(["a", "b"], [1.0, None], [("x.parquet", ["a", "b"]), ("y.parquet", ["b"])])
    with pytest.raises(ConfigError, match=r"agent_rl\.data\.order: 1 rows .*difficulty; the first is row 1 \(b\)"):
        RowOrder(rows, settings(order="difficulty"))
    with pytest.raises(ConfigError, match=r"x\.parquet and y\.parquet both have rows of 'b'"):
        RowOrder(rows, settings(weights=[1, 1]))
    with pytest.raises(ConfigError, match="there are no rows"):
        RowOrder(RowFacts([], []), settings(order="file"))
