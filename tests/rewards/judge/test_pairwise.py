"""The samples of a prompt against one another."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Value
from agent_rl.rewards.judge import PairwiseJudge
from tests.rewards.judge.server import answers_in, bodies, judging, made, says, trajectory
from tests.support.http_faults import FaultyServer, answer


def measure(judge: PairwiseJudge, *answers: str | None) -> list[Value | Exception]:
    return asyncio.run(judge.measure_group([trajectory(text) for text in answers]))


def values(results: list[Value | Exception]) -> list[float]:
    assert all(isinstance(result, Value) for result in results), results
    return [result.value for result in results if isinstance(result, Value)]


def longer(body: dict[str, Any]) -> str:
    first, second = map(len, answers_in(body))
    return f'{{"reason": "length", "winner": "{"A" if first > second else "B" if second > first else "tie"}"}}'


def prefers(verdict: Callable[[str, str], str]) -> Any:
    return judging(lambda body: f'{{"winner": "{verdict(*answers_in(body))}"}}')


@pytest.mark.parametrize("pairs", ["all", "round_robin"])
def test_better_samples_get_higher_scores(pairs: str) -> None:
    with FaultyServer(default=judging(longer)) as server:
        found = values(measure(made(PairwiseJudge, server, pairs=pairs), "aaaaa", "a", "aaa", "aa", "aaaa"))
    assert [sorted(found).index(value) for value in found] == [4, 0, 2, 1, 3]


def test_two_opponents_each_find_the_best() -> None:
    with FaultyServer(default=judging(longer)) as server:
        judge = made(PairwiseJudge, server, pairs="round_robin", opponents=2)
        found = values(measure(judge, "a", "aaa", "aaaaa", "aa", "aaaa"))
        assert len(server.requests) == 2 * 5
    assert max(found) == found[2]


def test_what_is_logged_and_noted() -> None:
    with FaultyServer(default=judging(longer)) as server:
        judge = made(PairwiseJudge, server)
        results = measure(judge, "a", "aa", "aaa")
    first = results[0]
    assert isinstance(first, Value)
    assert first.logged == {
        "pairs": 2, "failures": 0, "disagreement": 0, "calls": 2, "tokens": 20, "cache_hits": 0,
    }  # fmt: skip
    assert tuple(first.logged) == judge.logs
    assert first.notes["pairs"][0] == {"against": 1, "points": 0.0, "reasons": ["length", "length"]}
    assert sum(result.logged["calls"] for result in results if isinstance(result, Value)) == len(server.requests) == 6


def test_a_word_that_depends_on_the_order_is_a_tie() -> None:
    with FaultyServer(default=prefers(lambda first, second: "A")) as server:
        results = measure(made(PairwiseJudge, server), "a", "b")
        assert values(results) == [0.5, 0.5]
        assert all(result.logged["disagreement"] == 1 for result in results if isinstance(result, Value))
        assert [answers_in(body) for body in bodies(server)] in ([["a", "b"], ["b", "a"]], [["b", "a"], ["a", "b"]])
        (won, lost) = values(measure(made(PairwiseJudge, server, swap=False), "a", "b"))
    assert won > 0.5 > lost


def test_equal_answers_tie_without_a_question() -> None:
    with FaultyServer() as server:
        assert values(measure(made(PairwiseJudge, server), "a", "a", "a")) == pytest.approx([0.5] * 3)
        assert not server.requests


def test_a_sample_without_another_is_in_the_middle() -> None:
    with FaultyServer() as server:
        (result,) = measure(made(PairwiseJudge, server), "a")
        assert isinstance(result, Value)
        assert (result.value, tuple(result.logged)) == (0.5, PairwiseJudge.logs)


def test_a_missing_verdict_leaves_its_pair_out_and_one_without_any_is_unscored() -> None:
    def fails(body: dict[str, Any]) -> str:
        return "no verdict" if "bad" in answers_in(body) else longer(body)

    with FaultyServer(default=judging(fails)) as server:
        results = measure(made(PairwiseJudge, server), "aaa", "bad", "a", "aa")
    unscored = results.pop(1)
    assert isinstance(unscored, UnscoredError)
    assert "no comparison succeeded: 0 of 1 votes" in str(unscored)
    best, worst, middle = values(results)
    assert best > middle > worst
    assert all(result.logged["pairs"] == 2 for result in results if isinstance(result, Value))


def test_one_order_is_not_enough() -> None:
    def fails(body: dict[str, Any]) -> str:
        return "no verdict" if answers_in(body)[0] == "a" else longer(body)

    with FaultyServer(default=judging(fails)) as server:
        assert all(isinstance(each, UnscoredError) for each in measure(made(PairwiseJudge, server), "a", "aa"))


def test_a_judge_that_is_down_unscores_the_group() -> None:
    with FaultyServer(default=answer(500)) as server:
        results = measure(made(PairwiseJudge, server, attempts=1), "a", "b", "c")
        assert all(isinstance(each, UnscoredError) for each in results)
        server.default = answer(401)
        with pytest.raises(ConfigError):
            measure(made(PairwiseJudge, server), "a", "b")


def test_the_majority_of_votes_decides_a_pair() -> None:
    def two_of_three(body: dict[str, Any]) -> str:
        first, _ = answers_in(body)
        return f'{{"winner": "{"A" if (first == "a") != (body["seed"] == 1) else "B"}"}}'

    with FaultyServer(default=judging(two_of_three)) as server:
        won, lost = values(measure(made(PairwiseJudge, server, votes=3), "a", "b"))
    assert won > 0.5 > lost
    assert len(server.requests) == 6


def test_a_template_must_show_both() -> None:
    with FaultyServer(*says("x")) as server:
        with pytest.raises(ConfigError, match=r"components\.helpful\.config\.template: .*cannot be read"):
            made(PairwiseJudge, server, template="/nowhere/template.md")
