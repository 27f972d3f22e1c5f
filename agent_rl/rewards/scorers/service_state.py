"""Scores an episode by the final state of a service's database.

The ground truth is `{"domain": ..., "database": ..., "actions": [{"name", "arguments"}, ...], "initial": ...}`. The
database is the path of a JSON file, or its tables; the optional `initial` is the setting of the `service` tool. The
scorer runs the calls that the episode executed on one copy of the database and the right actions on another, and
compares the changes; lookups and failed calls change nothing. All calls in the optional list `"required"` must have
been made, with at least those arguments. A conversation that did not end with an answer scores 0. If there is no
episode, the calls are read from the text, as in `tool_match`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent_rl.errors import ConfigError, ToolError
from agent_rl.rewards.scorers.scorer import as_data, built_in, unusable
from agent_rl.rewards.scorers.tool_match import extract_calls
from agent_rl.tools.builtin._service import open_domain
from agent_rl.trajectory import StopReason

__all__ = ["score_service_state"]


@built_in("service_state", "agent_rl/service", "agent_rl/text_world")
def score_service_state(solution: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> float:
    """1.0 if the final database has the same changes as after the right actions, else 0.0.

    Raises:
        UnscoredError: the ground truth does not have this form, or its database cannot be opened.
    """
    truth = as_data(ground_truth)
    if not isinstance(truth, Mapping) or not {"domain", "database", "actions"} <= truth.keys():
        raise unusable(ground_truth, "{domain, database, actions}")
    executed = extra_info.get("executed_calls")
    if executed is not None and extra_info.get("stop_reason") != StopReason.ANSWERED.value:
        return 0.0
    try:
        right = _final_state(truth, truth["actions"])
    except (ConfigError, ToolError, TypeError) as error:
        raise unusable(ground_truth, f"one whose database can be opened ({error})") from error
    calls = extract_calls(solution) if executed is None else list(executed)
    missing = [item for item in truth.get("required") or () if not any(_is_call(call, item) for call in calls)]
    return float(not missing and _final_state(truth, calls) == right)


def _is_call(call: Mapping[str, Any], required: Mapping[str, Any]) -> bool:
    arguments = call.get("arguments")
    return (
        call.get("name") == required["name"]
        and isinstance(arguments, Mapping)
        and all(key in arguments and arguments[key] == value for key, value in required["arguments"].items())
    )


def _final_state(truth: Mapping[str, Any], calls: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Run the calls on a new copy of the database, and return the changed records.

    Raises:
        ConfigError: the domain or the database does not exist.
        ToolError: the initial state cannot be created.
    """
    domain = open_domain(truth["domain"], truth["database"], truth.get("initial"))
    for call in calls:
        try:
            domain.run(str(call.get("name")), dict(call.get("arguments") or {}))
        except (ToolError, KeyError, TypeError, ValueError, AttributeError):  # no schema checks the arguments here
            continue
    return domain.records.changes()
