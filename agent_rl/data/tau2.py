"""Tasks of tau2-bench, as rows: a policy, a simulated customer with instructions, and the right list of actions.

The ground truth is the list of gold actions, which `tool_match_all` compares with the calls that were made; the tools
themselves are not part of the rows. Of an action whose `compare_args` names some arguments, the others may be
left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.conversion import RawSet, value_of
from agent_rl.data.rows import make_row
from agent_rl.errors import ConfigError

__all__ = ["TAU2", "to_row"]

OPENING = "Hello, I need some help."


def to_row(
    example: Mapping[str, Any],
    split: str,
    index: int,
    *,
    domain: str = "retail",
    policy: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """One row of one task.

    Args:
        example: a task of tau2-bench.
        split: of the row.
        index: of the row in its split.
        domain: of the task, in `data_source`.
        policy: text of the system message; None: no such message.
        options: further arguments of `make_row`.

    Raises:
        ConfigError: naming the key that is missing or cannot be used.
    """
    scenario = value_of(example, "user_scenario")
    criteria = example.get("evaluation_criteria") or {}
    actions = [_call(action) for action in criteria.get("actions") or ()]
    system = [{"role": "system", "content": policy}] if policy else []
    info = {
        "task_id": str(value_of(example, "id")),
        "user": {"goal": _goal(scenario)},
        "initial_state": example.get("initial_state"),
        **{key: criteria[key] for key in ("communicate_info", "nl_assertions", "env_assertions") if criteria.get(key)},
    }
    return make_row(
        prompt=[*system, {"role": "user", "content": str(example.get("ticket") or OPENING)}],
        data_source=f"tau2/{domain}",
        ground_truth=actions,
        split=split,
        index=index,
        ability="service",
        extra_info=info,
        **options,
    )


def _goal(scenario: Any) -> str:
    """What the customer knows and wants, as text."""
    if not isinstance(scenario, Mapping) or not scenario.get("instructions"):
        raise ConfigError("column user_scenario", "it has no instructions", "Use tasks of tau2-bench")
    told, persona = scenario["instructions"], scenario.get("persona")
    keys = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    parts = [str(told[key]) for key in keys if told.get(key)] if isinstance(told, Mapping) else [str(told)]
    return "\n\n".join([*parts, *([f"How you are: {persona}"] if persona else [])])


def _call(action: Mapping[str, Any]) -> dict[str, Any]:
    arguments, compared = dict(value_of(action, "arguments")), action.get("compare_args")
    if compared is None:
        return {"name": value_of(action, "name"), "arguments": arguments}
    free = sorted(arguments.keys() - set(compared))
    return {"name": value_of(action, "name"), "arguments": arguments, "optional": free}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--domain", default="retail", help="default: %(default)s")
    parser.add_argument("--policy", metavar="FILE", help="the domain's policy, as the system message")


def _prepared(options: dict[str, Any]) -> dict[str, Any]:
    if path := options.pop("policy"):
        try:
            options["policy"] = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("--policy", f"{path} cannot be read ({error})", "Name a text file") from error
    return options


TAU2 = RawSet("tau2", to_row, agent_name="user_sim_agent", arguments=_arguments, prepare=_prepared)
