from typing import Any

import pytest
from pydantic import ValidationError

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.text_rules import TextRules, kept, score_text_rules


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


def test_case_can_count() -> None:
    assert kept("refund", TextRules(all_of=("Refund",), case_sensitive=True)) == {"all_of Refund": False}


def test_an_undecided_pattern_is_not_kept_either_way() -> None:
    text = "a" * 5_000 + "!"
    assert score_text_rules(text, {"patterns": ["^(a|aa)+$"], "forbidden_patterns": ["^(a|aa)+$"]}, {}) == 0.0


def test_the_score_is_the_share() -> None:
    assert score_text_rules("a b", {"all_of": ["a", "b", "c", "d"]}, {}) == 0.5


@pytest.mark.parametrize("rules", [{}, {"all_of": [""]}, {"patterns": ["("]}, {"all": ["a"]}, {"min_chars": -1}])
def test_rules_must_be_usable(rules: Any) -> None:
    with pytest.raises(ValidationError):
        TextRules.model_validate(rules)
    with pytest.raises(UnscoredError, match="a mapping of rules"):
        score_text_rules("a", rules, {})
