"""Compares the tool calls in a response with the expected ones: names and arguments.

Calls are read from `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, or from a text that is JSON (also in a
fence): one call or a list of them. The ground truth is a list of the same, as data or JSON text. In place of a value it
may have `{"one_of": [...]}`; a key in `"optional"` beside name and arguments may be missing.

The ground truth of the Berkeley Function-Calling Leaderboard, `[{"f": {"x": [1, 2], "y": ["", 3]}}]`, is read as well:
alternatives may nest (`{"x": [{"unit": ["m", "cm"], "size": [3, ""]}]}`), and texts are compared as the leaderboard
does, without case and the characters ` ,./-_*^'"`.

Arguments are compared as JSON values, but 1 equals 1.0, and white space at the ends of texts is ignored.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_rl.rewards.scorers.extraction import last_block
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable

__all__ = ["extract_calls", "score_tool_match"]

_EXACT_TEXT = "1.0 if exactly the expected calls were made, in any order; else 0.0."
_MAX_TEXT = 100_000
_MAX_CALLS = 64
_IGNORED = re.compile(r"[ ,./\-_*^'\"]")


@dataclass(frozen=True)
class _Text:
    """An expected text, in the leaderboard's reading."""

    folded: str


@dataclass(frozen=True)
class _Entries:
    """An expected mapping with alternatives."""

    values: Mapping[str, Any]
    optional: frozenset[str]


@built_in("tool_match_all", "bfcl*", "xlam*", "rlla*", exact=True, text=_EXACT_TEXT)
@built_in("tool_match", "agent_rl/tool_calls")
def score_tool_match(solution: str, ground_truth: Any, extra_info: Mapping[str, Any], *, exact: bool = False) -> float:
    """The number of expected calls that were made, divided by the larger number of calls of both sides; in any order.

    Where no call is expected, an answer without one is right, and no answer is wrong. With `exact` (`tool_match_all`)
    whatever is less than 1.0 is 0.0.

    Raises:
        UnscoredError: the ground truth is not a list of calls.
    """
    wanted = _calls(_spelled_out(ground_truth))
    if wanted is None or not all(isinstance(call.get("arguments"), Mapping) for call in wanted):
        raise unusable(ground_truth, "a list of {name, arguments}")
    made = extract_calls(solution)
    if not wanted or not made:
        return float(not wanted and not made and bool(solution.strip()))
    share = _matched([[_fits(other, call) for other in made] for call in wanted]) / max(len(wanted), len(made))
    return float(share == 1.0) if exact else share


def extract_calls(solution: str) -> list[dict[str, Any]]:
    """The calls in a response; an unreadable call is an empty dict, which matches no expected call."""
    text = solution[-_MAX_TEXT:]
    if "<tool_call>" in text:
        parted = [piece.partition("</tool_call>") for piece in text.split("<tool_call>")[1:]]
        contents = [content for content, closed, _ in parted if closed]
        calls = [_calls(content) or [{}] for content in contents[:_MAX_CALLS]]
        return [call for several in calls for call in several][:_MAX_CALLS]
    block = last_block(text, "json")
    return (_calls(text if block is None else block) or [])[:_MAX_CALLS]


def _matched(fits: Sequence[Sequence[bool]]) -> int:
    """How many expected calls can have one of the made calls each: the size of a maximum matching.

    Args:
        fits: for each expected call, which of the made calls fit it.
    """
    taken: dict[int, int] = {}  # the expected call of each made one

    def place(call: int, tried: set[int]) -> bool:
        for index, fit in enumerate(fits[call]):
            if fit and index not in tried:
                tried.add(index)
                if index not in taken or place(taken[index], tried):
                    taken[index] = call
                    return True
        return False

    return sum(place(call, set()) for call in range(len(fits)))


def _calls(value: Any) -> list[dict[str, Any]] | None:
    """Calls as `{name, arguments}`; None for anything else."""
    value = as_data(value)
    value = _from_json(value) if isinstance(value, str) else value
    values = [value] if isinstance(value, Mapping) else value
    if not isinstance(values, Sequence) or isinstance(values, str):
        return None
    calls = [_call(item) for item in values]
    return None if None in calls else [call for call in calls if call is not None]


def _spelled_out(ground_truth: Any) -> Any:
    """Calls written as `{name: {argument: [values that are accepted]}}`; "" among them means that it may be missing."""
    given = as_data(ground_truth)
    given = _from_json(given) if isinstance(given, str) else given
    if not isinstance(given, list) or not all(_is_short(item) for item in given):
        return ground_truth
    calls = []
    for item in given:
        ((name, accepted),) = item.items()
        optional = [key for key, values in accepted.items() if "" in values]
        calls.append({"name": name, "arguments": _alternatives(accepted), "optional": optional})
    return calls


def _alternatives(accepted: Mapping[str, Any]) -> dict[str, Any]:
    return {key: {"one_of": [_accepted(value) for value in values]} for key, values in accepted.items()}


def _accepted(value: Any) -> Any:
    """A value of the leaderboard's ground truths: a mapping has the alternatives of each of its keys."""
    if isinstance(value, Mapping) and all(isinstance(values, list) for values in value.values()):
        optional = [key for key, values in value.items() if "" in values]
        return _Entries(_alternatives(value), frozenset(optional))
    if isinstance(value, list):
        return [_accepted(item) for item in value]
    return _Text(_folded(value)) if isinstance(value, str) else value


def _folded(text: str) -> str:
    return _IGNORED.sub("", text).lower()


def _is_short(item: Any) -> bool:
    if not isinstance(item, Mapping) or len(item) != 1 or "name" in item or "function" in item:
        return False
    (accepted,) = item.values()
    return isinstance(accepted, Mapping) and all(isinstance(values, list) for values in accepted.values())


def _call(item: Any) -> dict[str, Any] | None:
    if not isinstance(item, Mapping):
        return None
    item = item["function"] if isinstance(item.get("function"), Mapping) else item
    name = item.get("name")
    arguments = item.get("arguments", item.get("parameters", item.get("args", {})))
    arguments = _from_json(arguments or "{}") if isinstance(arguments, str) else arguments
    named = item.get("optional")
    optional = [key for key in named if isinstance(key, str)] if isinstance(named, list | tuple) else []
    return {"name": name, "arguments": arguments, "optional": optional} if isinstance(name, str) else None


def _from_json(text: str) -> Any:
    """The value; None for invalid JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _fits(made: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    given, expected = made.get("arguments"), wanted["arguments"]
    if made.get("name") != wanted["name"] or not isinstance(given, Mapping):
        return False
    missing = expected.keys() - given.keys() - set(wanted["optional"])
    if missing or given.keys() - expected.keys():
        return False
    return all(_equal(value, expected[key], 0) for key, value in given.items())


def _equal(made: Any, wanted: Any, depth: int) -> bool:
    if depth > 50:
        return False
    if isinstance(wanted, Mapping) and wanted.keys() == {"one_of"}:
        return any(_equal(made, value, depth + 1) for value in wanted["one_of"])
    if isinstance(wanted, _Entries):
        if not isinstance(made, Mapping) or not wanted.values.keys() - wanted.optional <= made.keys():
            return False
        return made.keys() <= wanted.values.keys() and all(
            _equal(value, wanted.values[key], depth + 1) for key, value in made.items()
        )
    if isinstance(wanted, _Text):
        return isinstance(made, str) and _folded(made) == wanted.folded
    if isinstance(wanted, Mapping):
        same_keys = isinstance(made, Mapping) and made.keys() == wanted.keys()
        return same_keys and all(_equal(made[key], value, depth + 1) for key, value in wanted.items())
    if isinstance(wanted, list | tuple):
        same_length = isinstance(made, list) and len(made) == len(wanted)
        return same_length and all(_equal(*pair, depth + 1) for pair in zip(made, wanted, strict=True))
    if isinstance(wanted, str):
        return isinstance(made, str) and made.strip() == wanted.strip()
    if isinstance(wanted, bool) or wanted is None or isinstance(made, bool):
        return type(made) is type(wanted) and bool(made == wanted)
    if not isinstance(made, int | float) or not isinstance(wanted, int | float):
        return False
    return made == wanted or (isinstance(made, float) and math.isclose(made, wanted, rel_tol=1e-9))
