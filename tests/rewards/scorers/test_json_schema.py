import json
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers.json_schema import score_json_schema

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "age": {"type": "integer", "minimum": 0}},
    "patternProperties": {"^x_": {"type": "number"}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"name": "ada"}', 1),
        ('Here:\n```json\n{"name": "ada", "age": 3, "x_1": 0.5}\n```', 1),
        ('Here:\r\n```json\r\n{"name": "ada"}\r\n```\r\n', 1),
        ('<answer>{"name": "ada"}</answer>', 1),
        ('{"name": "Ada"}', 0),
        ('{"age": 3}', 0),
        ('{"name": "ada", "age": -1}', 0),
        ('{"name": "ada", "x_1": "y"}', 0),
        ('{"name": "ada", "age": NaN}', 0),
        ('{"name": "ada"', 0),
        ("[]", 0),
        ("", 0),
    ],
)
def test_one_for_valid_json_and_zero_for_anything_else(text: str, score: int) -> None:
    assert score_json_schema(text, SCHEMA, {}) == score
    assert score_json_schema(text, json.dumps(SCHEMA), {}) == score
    assert score_json_schema(text, None, {"schema": SCHEMA}) == score


def test_a_pattern_that_does_not_end_is_not_matched() -> None:
    schema = {"type": "string", "pattern": "^(a|aa)+$"}
    assert score_json_schema(json.dumps("a" * 60 + "!"), schema, {}) == 0.0
    assert score_json_schema(json.dumps("a" * 60), schema, {}) == 1.0


def test_unique_items_are_never_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pairs, an answer of 100,000 characters took minutes."""
    monkeypatch.delattr("jsonschema._keywords.uniq")
    schema = {"type": "array", "uniqueItems": True}
    objects = [{"n": number} for number in range(100)]
    assert score_json_schema(json.dumps(objects), schema, {}) == 1.0
    assert score_json_schema(json.dumps([*objects, {"n": 99.0}]), schema, {}) == 0.0


@pytest.mark.parametrize("truth", [None, "", "text", {"type": "thing"}, [1], 5, {"pattern": 5}])
def test_a_truth_must_be_a_schema(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="is not a JSON schema"):
        score_json_schema("{}", truth, {})
