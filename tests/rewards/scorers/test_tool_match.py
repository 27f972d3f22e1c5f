import json
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.tool_match import score_tool_match


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


TRUTH = [{"name": "weather", "arguments": {"city": "Paris", "days": 2}}, {"name": "time", "arguments": {}}]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (call("weather", city="Paris", days=2) + call("time"), 1.0),
        ("so " + call("time") + " and " + call("weather", days=2.0, city=" Paris ") + "!", 1.0),
        (json.dumps([{"function": {"name": "time", "arguments": "{}"}}, TRUTH[0]]), 1.0),
        ("```json\n" + json.dumps(TRUTH) + "\n```", 1.0),
        (call("weather", city="Paris", days=2), 0.5),
        (call("weather", city="Rome", days=2) + call("time"), 0.5),
        (call("weather", city="Paris", days="2") + call("time"), 0.5),
        (call("weather", city="Paris", days=2, unit="C") + call("time"), 0.5),
        (call("weather", city="Paris") + call("time"), 0.5),
        (call("weather", city="Paris", days=2) + call("time") + call("time"), 2 / 3),
        (call("time") * 64, 1 / 64),
        ("<tool_call>{broken</tool_call>" + call("time"), 0.5),
        ("<tool_call>" + json.dumps(TRUTH[0]), 0.0),
        ("no call", 0.0),
        ("", 0.0),
    ],
)
def test_calls_are_matched_in_any_order(text: str, score: float) -> None:
    assert score_tool_match(text, TRUTH, {}) == pytest.approx(score)
    assert score_tool_match(text, json.dumps(TRUTH), {}) == pytest.approx(score)
    assert score_tool_match(text, TRUTH, {}, all_or_nothing=True) == float(score == 1.0)


def test_values_may_be_one_of_several_and_keys_optional() -> None:
    truth = {"name": "f", "arguments": {"x": {"one_of": ["a", "b"]}, "y": [1, {"z": None}]}, "optional": ["y"]}
    assert score_tool_match(call("f", x="b"), truth, {}) == 1.0
    assert score_tool_match(call("f", x="b", y=[1, {"z": None}]), truth, {}) == 1.0
    assert score_tool_match(call("f", x="b", y=[True, {"z": None}]), truth, {}) == 0.0
    assert score_tool_match(call("f", x="c"), truth, {}) == 0.0


def test_alternatives_nest_and_texts_are_compared_as_the_leaderboard_does() -> None:
    truth = [{"area": {"room": [{"width": [20], "unit": ["m", ""]}], "tags": [["a", "b"], ["b", "a"]]}}]
    for room, tags, score in (
        ({"width": 20, "unit": "M"}, ["a", "b"], 1.0),
        ({"width": 20.0}, ["b", "a"], 1.0),
        ({"width": 21}, ["a", "b"], 0.0),
        ({"width": [20]}, ["a", "b"], 0.0),
        ({"unit": "m"}, ["a", "b"], 0.0),
        ({"width": 20, "depth": 1}, ["a", "b"], 0.0),
        ({"width": 20}, ["a"], 0.0),
    ):
        assert score_tool_match(call("area", room=room, tags=tags), truth, {}) == score
        assert score_tool_match(call("area", room=room, tags=tags), json.dumps(truth), {}) == score


def test_a_call_that_fits_two_is_given_to_the_one_that_needs_it() -> None:
    truth = [{"f": {"x": [1], "y": [2, ""]}}, {"f": {"x": [1], "y": [3, ""]}}]
    assert score_tool_match(call("f", x=1) + call("f", x=1, y=2), truth, {}) == 1.0
    assert score_tool_match(call("f", x=1, y=3) + call("f", x=1), truth, {}) == 1.0
    assert score_tool_match(call("f", x=1, y=2) + call("f", x=1, y=2), truth, {}) == 0.5


def test_no_call_can_be_what_is_expected() -> None:
    assert score_tool_match("just text", [], {}) == 1.0
    assert score_tool_match(call("f"), [], {}) == 0.0


@pytest.mark.parametrize("truth", [None, "text", [1], {"arguments": {}}, [{"name": "f", "arguments": [1]}]])
def test_a_truth_must_be_calls(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not a list of"):
        score_tool_match(call("f"), truth, {})
