from typing import Any

import pytest
from pydantic import ValidationError

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.text_rules import TextRules, compiled, found, kept, score_text_rules, tag_share


def test_each_rule_is_judged() -> None:
    rules = TextRules(
        all_of=("Refund", "c++"),
        any_of=("today", "tomorrow"),
        none_of=("guarantee",),
        patterns=(r"order #\d+",),
        forbidden_patterns=("!!",),
        min_chars=5,
        max_chars=100,
    )
    assert kept("Your refund for order #12 comes TOMORROW, guaranteed. C++", rules) == {
        "all_of Refund": True,
        "all_of c++": True,
        "any_of": True,
        "none_of guarantee": True,
        "patterns order #\\d+": True,
        "forbidden !!": True,
        "min_chars": True,
        "max_chars": True,
    }
    assert not any(kept("!! guarantee" + " " * 100, rules.model_copy(update={"min_chars": 500})).values())


def test_numbers_likeness_and_length_are_rules_too() -> None:
    def share(text: str, **rules: Any) -> float:
        return score_text_rules(text, rules, {})

    assert share("it takes 12 days", number_between=(10, 15)) == 1.0
    assert share("it takes 16 days", number_between=(10, 15)) == 0.0
    assert share("it takes 16 days", number_between=(10, None)) == 1.0
    assert share("it takes long", number_between=(None, 15)) == 0.0
    for bounds in ((0.1, 0.3), (0.1, None), (None, 0.3)):
        assert share("0.1", number_between=bounds) == share("0.3", number_between=bounds) == 1.0  # both are inclusive
    assert share("A quick fox", similar_to="a  quick fox") == 1.0
    assert share("abcd", similar_to="bcde") == 0.75
    assert share("a" * 75, target_chars=100) == 0.75
    assert share("a" * 500, target_chars=100) == 0.0


def test_an_undecided_pattern_is_not_kept_either_way() -> None:
    text = "a" * 5_000 + "!"
    assert score_text_rules(text, {"patterns": ["^(a|aa)+$"], "forbidden_patterns": ["^(a|aa)+$"]}, {}) == 0.0


def test_the_score_is_the_share() -> None:
    assert score_text_rules("a b", {"all_of": ["a", "b", "c", "d"]}, {}) == 0.5
    assert score_text_rules("a b", {"all_of": ["A", "b"], "case_sensitive": True}, {}) == 0.5


@pytest.mark.parametrize("rules", [{}, {"all_of": [""]}, {"patterns": ["("]}, {"all": ["a"]}, {"min_chars": -1}])
def test_rules_must_be_usable(rules: Any) -> None:
    with pytest.raises(ValidationError):
        TextRules.model_validate(rules)
    with pytest.raises(UnscoredError, match="a mapping of rules"):
        score_text_rules("a", rules, {})


@pytest.mark.parametrize(
    ("text", "share", "alone"),
    [
        ("<think>a</think>\n<answer>b</answer>", 1.0, 1.0),
        ("so <think>a</think><answer>b</answer>", 1.0, 0.0),
        ("<think>a</think><answer>b", 0.5, 0.0),
        ("<answer>b</answer><think>a</think>", 0.5, 0.0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0.5, 0.0),
        ("<think>a</answer>", 0.0, 0.0),
        ("", 0.0, 0.0),
        ("<think>a</think><answer>b</answer>" + " " * 10**6, 0.0, 0.0),
    ],
)
def test_tags_stand_once_closed_and_in_order(text: str, share: float, alone: float) -> None:
    assert tag_share(text, ["think", "answer"]) == share
    assert tag_share(text, ["think", "answer"], alone=True) == alone


def test_patterns_are_searched_for_a_limited_time() -> None:
    assert found(compiled("B+", ignore_case=True), "abba") is True
    assert found(compiled("c"), "abba") is False
    assert found(compiled("^(a|aa)+$"), "a" * 5_000 + "!") is None
