"""The three kinds of verdicts, in other words and in wrong ones."""

from typing import Any

import pytest
from pydantic import Field

from agent_rl.reasoning_rm import BasePromptTemplate, PairwiseTemplate, PointwiseTemplate, RubricTemplate
from agent_rl.rewards.judge.kinds import scale_of
from agent_rl.rewards.judge.verdict import VerdictError


@pytest.mark.parametrize(
    ("template", "reply", "field", "value"),
    [
        (PairwiseTemplate, "<preference>Response b</preference>", "preference", "B"),
        (PairwiseTemplate, "Both are good.\nPreference: tie.", "preference", "tie"),
        (RubricTemplate, '```\n<scores>{"clear": 3, "true": 0.5}</scores>\n```', "scores", {"clear": 3.0, "true": 0.5}),
    ],
)
def test_other_verdicts_in_other_words(template: Any, reply: str, field: str, value: Any) -> None:
    assert getattr(template.parse(reply), field) == value


@pytest.mark.parametrize(
    ("template", "reply"),
    [
        (PairwiseTemplate, "<preference>A or B</preference>"),
        (PairwiseTemplate, "Response A is better, I prefer A."),
        (RubricTemplate, '<scores>{"clear": "good"}</scores>'),
        (RubricTemplate, '<scores>{"clear": 9}</scores>'),
    ],
)
def test_what_is_no_verdict_is_refused(template: Any, reply: str) -> None:
    with pytest.raises(VerdictError):
        template.parse(reply)


class Unsure(BasePromptTemplate):
    score: float | None = Field(default=None, ge=-1, le=0.5)


class Open(BasePromptTemplate):
    score: int = Field(ge=0)


class Loose(BasePromptTemplate):
    scores: dict[str, float]


@pytest.mark.parametrize(
    ("template", "scale"),
    [
        (PointwiseTemplate, (0, 4)), (RubricTemplate, (0, 4)), (Unsure, (-1, 0.5)),
        (PairwiseTemplate, None), (Open, None), (Loose, None),
    ],
)  # fmt: skip
def test_the_bounds_of_a_score_are_the_scale(template: Any, scale: Any) -> None:
    assert scale_of(template) == scale


def test_a_prompt_has_its_parts_and_asks_for_thoughts_unless_the_chat_template_does() -> None:
    text = PairwiseTemplate.format(desc="Compare.", query="2 + 2?", response_a="4", response_b="5")
    assert [line for line in text.splitlines() if line.startswith("# ")] == [
        "# Task", "# Query", "# Response A", "# Response B", "# Output"
    ]  # fmt: skip
    assert "<think>" in text
    assert "<think>" not in PairwiseTemplate.format(query="2 + 2?", enable_thinking=False)
