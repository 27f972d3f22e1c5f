"""Checking an answer: the verdict, and what each check is worth."""

from pathlib import Path

import pytest

from agent_rl.errors import FatalError, UnscoredError
from agent_rl.tools import load_tools
from tests.tools import use

SHIPPED = Path(__file__).parents[3] / "tool_configs" / "check_answer.yaml"
NUMERIC = "agent_rl.rewards.scorers.math.numeric.numeric_match"


def configured(tmp_path, **config):
    return use.load(tmp_path, "check_answer", {"scorer": NUMERIC, **config})


def check(specs, *answers, ground_truth="42", **kwargs):
    kwargs = kwargs or {"create_kwargs": {"ground_truth": ground_truth}}
    turns = ([("check_answer", {"answer": answer})] for answer in answers)
    return use.run(specs, *turns, tools_kwargs={"check_answer": kwargs})


def test_improving_is_rewarded_and_repeating_costs():
    results = check(load_tools(SHIPPED), "41", "41 ", "42", "42.0", "42")
    assert [(result.text, result.reward) for result in results] == [
        ("'41' is not correct.", 0.0),
        ("'41' is not correct; you have checked it before.", -0.05),
        ("'42' is correct.", 0.05),
        ("'42.0' is correct.", 0.0),
        ("'42' is correct; you have checked it before.", -0.05),
    ]
    assert [result.metrics["score"] for result in results] == [0, 0, 1, 1, 1]


def test_partial_scores_are_rewarded_by_the_improvement(tmp_path):
    (tmp_path / "mine.py").write_text("def share(answer, ground_truth):\n    return len(answer) / len(ground_truth)\n")
    specs = configured(tmp_path, scorer=f"{tmp_path}/mine.py:share", improvement_reward=1, stall_penalty=0.2)
    results = check(specs, "a", "abc", "ab", "abcd", ground_truth="abcd")
    assert [result.reward for result in results] == pytest.approx([0.25, 0.5, -0.2, 0.25])
    assert results[1].text == "'abc' is partly correct (0.75 of 1)."


def test_the_number_of_checks_is_bounded(tmp_path):
    results = check(configured(tmp_path, max_checks=1), "1", "42")
    assert results[1].text == "All 1 checks are used up. Give your final answer."
    assert results[1].reward == 0


def test_a_row_that_cannot_be_judged(tmp_path):
    with pytest.raises(FatalError, match=r"tools_kwargs\.check_answer\.create_kwargs\.ground_truth"):
        check(configured(tmp_path), "1", create_kwargs={})
    with pytest.raises(UnscoredError, match="cannot judge with this row's ground truth"):
        check(configured(tmp_path), "1", ground_truth="no number")
