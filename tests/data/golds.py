"""What a right response to a row of a real data set looks like: its published solution, answer, query or calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["response"]


def response(row: Mapping[str, Any]) -> str:
    """A response that has to score 1.0."""
    truth, info = row["reward_model"]["ground_truth"], row["extra_info"]
    match row["ability"]:
        case "code":
            return f"```python\n{info['solution']}\n```"
        case "tool_calls":
            calls = [f"<tool_call>{json.dumps(_call(call))}</tool_call>" for call in truth]
            return "\n".join(calls) or "None of the functions is for that."
        case "choice" | "judge":
            return f"The answer is ({truth})."
        case "search":
            return f"<answer>{truth[-1]}</answer>"
    return str(info.get("solution") or info.get("answer") or f"It is \\boxed{{{truth}}}.")


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """One call that a truth accepts; of BFCL, `{name: {argument: [values]}}`, with the first value of each argument."""
    if "arguments" in call:
        return {"name": call["name"], "arguments": call["arguments"]}
    ((name, accepted),) = call.items()
    return {"name": name, "arguments": {key: _first(values) for key, values in accepted.items() if values[0] != ""}}


def _first(values: Any) -> Any:
    value = values[0]
    if isinstance(value, dict):
        return {key: _first(each) for key, each in value.items() if isinstance(each, list) and each[0] != ""}
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        return [_first([each]) for each in value]
    return value
