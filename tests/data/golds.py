"""What a right response to a row of a real data set looks like: its published solution, answer, query or calls."""

import json
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

Choose = Callable[[Sequence[Any]], Any]


def response(row: Mapping[str, Any]) -> str:
    """A response that has to score 1.0."""
    truth, info = row["reward_model"]["ground_truth"], row["extra_info"]
    match row["ability"]:
        case "code":
            return f"```python\n{info['solution']}\n```"
        case "tool_calls":
            calls = [f"<tool_call>{json.dumps(call_of(call))}</tool_call>" for call in truth]
            return "\n".join(calls) or "None of the functions is for that."
        case "choice" | "judge":
            return f"The answer is ({truth})."
        case "search":
            return f"<answer>{truth[-1]}</answer>"
    return str(info.get("solution") or info.get("answer") or f"It is \\boxed{{{truth}}}.")


def call_of(call: Mapping[str, Any], choose: Choose = itemgetter(0)) -> dict[str, Any]:
    """One call that a truth accepts; of BFCL, `{name: {argument: [values]}}`, with a chosen value of each argument."""
    if "arguments" in call:
        return {"name": call["name"], "arguments": call["arguments"]}
    ((name, accepted),) = call.items()
    return {"name": name, "arguments": _chosen(accepted, choose)}


def _chosen(accepted: Mapping[str, Any], choose: Choose) -> dict[str, Any]:
    picked = {key: choose(values) for key, values in accepted.items() if isinstance(values, list)}
    return {key: _built(value, choose) for key, value in picked.items() if value != "" or accepted[key] == [""]}


def _built(value: Any, choose: Choose) -> Any:
    if isinstance(value, dict):
        return _chosen(value, choose)
    return [_built(item, choose) for item in value] if isinstance(value, list) else value
