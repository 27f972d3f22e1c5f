"""Scores the tool calls in a response by comparing their names and arguments with the expected calls.

Calls are read from `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or from JSON text (also in a code
fence): one call or a list of calls. The ground truth is a list of calls in this form, as data or JSON text. The ground
truth may have `{"one_of": [...]}` instead of a value; an `"optional"` key next to name and arguments lists the optional
arguments.

The ground truth of the Berkeley Function-Calling Leaderboard, `[{"f": {"x": [1, 2], "y": ["", 3]}}]`, is accepted too:
alternatives may nest (`{"x": [{"unit": ["m", "cm"], "size": [3, ""]}]}`), and strings are compared as the leaderboard
does, ignoring case and the characters ` ,./-_*^'"`.

Arguments are compared as JSON values, but 1 equals 1.0, and whitespace at both ends of a string is ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.rewards.scorers.extraction import last_block
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

_MAX_TEXT = 100_000
_MAX_CALLS = 64
_IGNORED = re.compile(r"[ ,./\-_*^'\"]")


@built_in("tool_match", "bfcl*", "xlam*", "rlla*", all_or_nothing=True)
@built_in("tool_match", "agent_rl/tool_calls")
def score_tool_match(
    solution: str, ground_truth: Any, extra_info: Mapping[str, Any], *, all_or_nothing: bool = False
) -> float:
    """The share of the expected calls that were made; with `all_or_nothing: true`, a score below 1.0 becomes 0.0.

    The number of expected calls that were made, in any order, is divided by the number of expected or of actual calls,
    whichever is larger. If no call is expected, text without a call scores 1.0, and empty text scores 0.0.

    Raises:
        UnscoredError: the ground truth is not a list of calls.
    """
    short = _short_calls(ground_truth)
    expected = _calls(ground_truth) if short is None else short
    if expected is None or not all(isinstance(call["arguments"], Mapping) for call in expected):
        raise unusable(ground_truth, "a list of {name, arguments}")
    calls = extract_calls(solution)
    if not expected or not calls:
        return float(not expected and not calls and bool(solution.strip()))
    fits = [[_fits(call, other, short is not None) for call in calls] for other in expected]
    share = _matched(fits) / max(len(expected), len(calls))
    return float(share == 1.0) if all_or_nothing else share


def extract_calls(solution: str) -> list[dict[str, Any]]:
    """Extract the calls from a response; an unreadable call becomes an empty dict, which matches no expected call."""
    text = solution[-_MAX_TEXT:]
    if "<tool_call>" in text:
        pieces = [piece.partition("</tool_call>") for piece in text.split("<tool_call>")[1:]]
        contents = [content for content, end, _ in pieces if end]
        calls = [_calls(content) or [{}] for content in contents[:_MAX_CALLS]]
        return [call for several in calls for call in several][:_MAX_CALLS]
    block = last_block(text, "json")
    return (_calls(text if block is None else block) or [])[:_MAX_CALLS]


def _matched(fits: Sequence[Sequence[bool]]) -> int:
    """Return the maximum number of expected calls that can be paired with different actual calls.

    Args:
        fits: for each expected call, a list of booleans that say whether each actual call fits it.
    """
    pairs: dict[int, int] = {}  # maps actual calls to expected calls

    def place(call: int, visited: set[int]) -> bool:
        for index, fit in enumerate(fits[call]):
            if fit and index not in visited:
                visited.add(index)
                if index not in pairs or place(pairs[index], visited):
                    pairs[index] = call
                    return True
        return False

    return sum(place(call, set()) for call in range(len(fits)))


def _calls(value: Any) -> list[dict[str, Any]] | None:
    """Convert a value to calls as `{name, arguments, optional}`; return None if it does not contain calls."""
    value = _as_json(value)
    values = [value] if isinstance(value, Mapping) else value
    if not isinstance(values, Sequence) or isinstance(values, str):
        return None
    calls = [_call(item) for item in values]
    return None if None in calls else [call for call in calls if call is not None]


def _call(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, Mapping):
        return None
    item = item["function"] if isinstance(item.get("function"), Mapping) else item
    name = item.get("name")
    arguments = item.get("arguments", item.get("parameters", item.get("args", {})))
    arguments = _as_json(arguments or "{}") if isinstance(arguments, str) else arguments
    keys = item.get("optional")
    optional = [key for key in keys if isinstance(key, str)] if isinstance(keys, list | tuple) else []
    return {"name": name, "arguments": arguments, "optional": optional} if isinstance(name, str) else None


def _short_calls(ground_truth: Any) -> list[dict[str, Any]] | None:
    """Convert calls written as `{name: {argument: [accepted values]}}`; return None for any other ground truth."""
    values = _as_json(ground_truth)
    if not isinstance(values, list) or not all(isinstance(item, Mapping) and len(item) == 1 for item in values):
        return None
    calls = [{"name": name, "arguments": accepted} for item in values for name, accepted in item.items()]
    ours = any(call["name"] in ("name", "function") for call in calls)
    return None if ours or not all(_has_alternatives(call["arguments"]) for call in calls) else calls


def _as_json(value: Any) -> Any:
    """Parse a value that is JSON text; return other values unchanged, and None for invalid JSON."""
    value = as_data(value)
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return None


def _fits(made: Mapping[str, Any], wanted: Mapping[str, Any], short: bool) -> bool:
    arguments, expected = made.get("arguments"), wanted["arguments"]
    if made.get("name") != wanted["name"] or not isinstance(arguments, Mapping):
        return False
    if short:
        return _is_accepted(arguments, expected)
    if not expected.keys() - set(wanted["optional"]) <= arguments.keys() <= expected.keys():
        return False
    return all(_equal(value, expected[key]) for key, value in arguments.items())


def _equal(made: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping) and wanted.keys() == {"one_of"}:
        return any(_equal(made, value) for value in wanted["one_of"])
    if isinstance(wanted, Mapping):
        same_keys = isinstance(made, Mapping) and made.keys() == wanted.keys()
        return same_keys and all(_equal(made[key], value) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        same_length = isinstance(made, list) and len(made) == len(wanted)
        return same_length and all(map(_equal, made, wanted))
    if isinstance(wanted, str):
        return isinstance(made, str) and made.strip() == wanted.strip()
    if isinstance(wanted, bool) or wanted is None or isinstance(made, bool):
        return type(made) is type(wanted) and bool(made == wanted)
    if not isinstance(made, int | float) or not isinstance(wanted, int | float):
        return False
    return made == wanted or (isinstance(made, float) and math.isclose(made, wanted, rel_tol=1e-9))


def _is_accepted(made: Any, wanted: Any) -> bool:
    """Whether the leaderboard accepts a value; an entry with "" among its alternatives may be missing."""
    if _has_alternatives(wanted):
        required = {key for key, values in wanted.items() if "" not in values}
        return (
            isinstance(made, Mapping)
            and required <= made.keys() <= wanted.keys()
            and all(any(_is_accepted(value, other) for other in wanted[key]) for key, value in made.items())
        )
    if isinstance(wanted, list):
        return isinstance(made, list) and len(made) == len(wanted) and all(map(_is_accepted, made, wanted))
    if isinstance(wanted, str):
        return isinstance(made, str) and _folded(made) == _folded(wanted)
    return _equal(made, wanted)


def _has_alternatives(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(values, list) for values in value.values())


def _folded(text: str) -> str:
    return _IGNORED.sub("", text).lower()
