"""Scores answers in JSON: 1.0 if the answer is valid under a schema, else 0.0.

The JSON is read from the last ```json block or `<answer>` tag, else from the whole text. The schema is the ground truth
or, if that is empty, `extra_info["schema"]`, as data or as JSON text. An answer whose check takes more than five
seconds scores 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from agent_rl.rewards.scorers.extraction import tagged_block
from agent_rl.rewards.scorers.scorer import built_in, unusable
from agent_rl.tools.bounded_schema import bounded, time_limit

_MAX_TEXT = 100_000
_LIMIT_S = 5.0


@built_in("json_schema")
def score_json_schema(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """Whether the response's JSON is valid under the schema.

    Raises:
        UnscoredError: the schema is missing or cannot be used.
    """
    schema = ground_truth if ground_truth not in (None, "") else extra_info.get("schema")
    try:
        validator = _validator(schema if isinstance(schema, str) else json.dumps(schema))
    except (ValueError, TypeError, RecursionError, jsonschema.SchemaError):
        raise unusable(schema, "a JSON schema") from None
    try:
        with time_limit(_LIMIT_S):
            return float(validator.is_valid(extract_json(solution)))
    except (ValueError, RecursionError, TimeoutError):  # the text is not JSON, too deeply nested, or too slow to check
        return 0.0


def extract_json(solution: str) -> Any:
    """Extract the JSON value from a response.

    Raises:
        ValueError: the response has no JSON value, or is too long.
        RecursionError: the value is nested too deeply.
    """
    if len(solution) > 2 * _MAX_TEXT:
        raise ValueError("too long")
    text = tagged_block(solution, "json")
    if len(text) > _MAX_TEXT:
        raise ValueError("too long")
    return json.loads(text, parse_constant=_refuse)


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    schema = json.loads(schema_text)
    if not isinstance(schema, dict):
        raise ValueError("not a schema")
    kind: Any = validator_for(schema, default=jsonschema.Draft202012Validator)
    kind.check_schema(schema)
    return bounded(kind)(schema)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
