"""Rewards of judges agree with their formulas, and say whose fault a missing number is."""

import math
import random
from statistics import fmean
from typing import Any

import pytest
from pydantic import Field

from agent_rl.errors import ConfigError
from agent_rl.reasoning_rm import (
    BasePromptTemplate,
    PairwiseTemplate,
    PointwiseTemplate,
    RubricTemplate,
    calculate_reward,
    compute_score,
    format_reward,
    pairwise_reward,
    pointwise_reward,
)

ROW = {"index": 7, "split": "train", "sample": {"answers": ["<score>4</score>"]}}


def test_rewards_are_their_formulas() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        said, true = rng.randint(0, 4), rng.choice((rng.uniform(0, 4), float(rng.randint(0, 4))))
        assert pointwise_reward(said, true) == pytest.approx(math.exp(-2 * abs(said - true) / 4), abs=1e-9)
        assert calculate_reward(said, true) == pytest.approx(max(0, 1 - abs(said - true) / 4), abs=1e-9)
        low, high, k = rng.uniform(-5, 0), rng.uniform(1, 5), rng.uniform(0.1, 9)
        e, width = abs(said - true), high - low
        assert pointwise_reward(said, true, low=low, high=high, k=k) == pytest.approx(
            math.exp(-k * e / width), abs=1e-9
        )
        assert calculate_reward(said, true, low=low, high=high) == pytest.approx(max(0, 1 - e / width), abs=1e-9)
        reply = PointwiseTemplate.render({"score": said, "think": "So."})
        found = compute_score("a", reply, true, ROW)
        assert found["score"] == pytest.approx(math.exp(-2 * e / 4), abs=1e-9)
        assert (found["absolute_error"], found["accuracy"]) == (e, float(e == 0))


@pytest.mark.parametrize("truth", [None, "", "good", math.nan, True, 9, -1])
def test_a_missing_truth_stops_the_run_with_its_row(truth: Any) -> None:
    with pytest.raises(ConfigError, match=r"helpsteer2, train row 7, ground_truth: "):
        compute_score("helpsteer2", "<score>3</score>", truth, ROW)


@pytest.mark.parametrize("reply", ["", "no verdict", "<score>5</score>", "It says:\n<score>4</score>\nso 4."])
def test_a_verdict_that_cannot_be_read_is_the_policys(reply: str) -> None:
    found = compute_score("a", reply, "4", ROW)
    assert (found["score"], found["parsed"], found["absolute_error"]) == (0.0, 0.0, 4.0)
    assert found.keys() == compute_score("a", "<score>1</score>", "4", ROW).keys()


def test_the_right_winner_in_both_orders() -> None:
    assert [pairwise_reward(said, "A") for said in ("A", "B", "tie")] == [1, 0, 0]
    assert pairwise_reward("tie", "A", tie=0.5) == 0.5
    assert pairwise_reward("tie", "tie") == 1
    assert [pairwise_reward("A", "A", swapped=said) for said in ("B", "A", "tie")] == [1, 0, 0]
    with pytest.raises(ConfigError, match="expected A, B or tie"):
        pairwise_reward("A", "C")


def test_the_template_decides_what_is_scored() -> None:
    pair = compute_score("p", "<preference>B</preference>", "B", template=PairwiseTemplate)
    scores = compute_score("r", '<scores>{"a": 4, "b": 3}</scores>', {"a": 4, "b": 4}, template=RubricTemplate)
    assert (pair["score"], scores["accuracy"]) == (1, 0)
    assert scores["score"] == pytest.approx(fmean([1, math.exp(-0.5)]))
    assert compute_score("r", '<scores>{"a": 4}</scores>', {"a": 4, "b": 4}, template=RubricTemplate)["parsed"] == 0
    linear = compute_score("p", "<score>3</score>", 4, reward=calculate_reward, format_weight=0.2)
    assert linear["score"] == pytest.approx(0.8 * 0.75 + 0.2)
    texts = ("<score>3</score>", "It is.\n<score>3</score>", "3")
    assert [format_reward(text, PointwiseTemplate) for text in texts] == [1, 0.5, 0]


class Safety(BasePromptTemplate):
    score: float = Field(ge=-1, le=1)


class Grade(BasePromptTemplate):
    score: int = Field(ge=1, le=10)


def test_the_bounds_in_the_template_are_the_scale() -> None:
    assert compute_score("s", "<score>-1</score>", 1, template=Safety)["score"] == pytest.approx(math.exp(-2))
    assert compute_score("s", "unsafe", 1, template=Safety)["absolute_error"] == 2
    assert compute_score("g", "<score>9</score>", "9", template=Grade)["score"] == 1
    assert compute_score("g", "<score>1</score>", 5, template=Grade, high=5)["score"] == pytest.approx(math.exp(-2))
