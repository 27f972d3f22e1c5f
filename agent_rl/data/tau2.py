"""Tasks of tau2-bench, as rows: a policy, a simulated customer with instructions, and what the database has to become.

The ground truth is for `service_state`: domain, database and the gold actions, which are run on it; the tool `service`
with the same database has the tools. Left out are assertions that a judge would have to check (`nl_assertions`) and
those about the customer's own devices: they stay in `extra_info`. Tasks with neither gold actions nor a state to begin
with that rows can express (a conversation that has begun) are left out altogether.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.data.conversion import RawSet, value_of
from agent_rl.data.rows import makes_row
from agent_rl.data.sources import Raw, read_raw
from agent_rl.errors import ConfigError
from agent_rl.tools.builtin._service import load_domain, operations
from agent_rl.tools.builtin._service.records import read_tables

__all__ = ["TAU2", "read_tasks", "to_row"]

OPENING = "Hello, I need some help."


@makes_row
def to_row(
    example: Mapping[str, Any], domain: str = "retail", database: str = "db.json", policy: str | None = None
) -> dict[str, Any]:
    """One row of one task.

    Args:
        example: a task of tau2-bench.
        domain: of the task, in `data_source`.
        database: path of the domain's `db.json`.
        policy: text of the system message; None: no such message.

    Raises:
        ConfigError: naming the key that is missing or cannot be used.
    """
    scenario = value_of(example, "user_scenario")
    criteria = example.get("evaluation_criteria") or {}
    actions = [_call(action) for action in value_of(criteria, "actions")]
    initial = _initial(example.get("initial_state") or {})
    required = [_compared(action) for action in criteria["actions"]] if "ACTION" in _basis(criteria) else []
    system = [{"role": "system", "content": policy}] if policy else []
    info = {
        "task_id": str(value_of(example, "id")),
        "user": {"goal": _goal(scenario)},
        **{key: criteria[key] for key in ("communicate_info", "nl_assertions", "env_assertions") if criteria.get(key)},
    }
    return {
        "prompt": [*system, {"role": "user", "content": str(example.get("ticket") or OPENING)}],
        "data_source": f"tau2/{domain}",
        "ground_truth": {
            "domain": domain,
            "database": database,
            "actions": actions,
            **initial,
            **({"required": required} if required else {}),
        },
        "ability": "service",
        "extra_info": info,
        "tools_kwargs": {name: {"create_kwargs": initial} for name in operations(domain)} if initial else None,
    }


def _goal(scenario: Any) -> str:
    """What the customer knows and wants, as text."""
    if not isinstance(scenario, Mapping) or not scenario.get("instructions"):
        raise ConfigError("column user_scenario", "it has no instructions", "Use tasks of tau2-bench")
    told, persona = scenario["instructions"], scenario.get("persona")
    keys = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    parts = [str(told[key]) for key in keys if told.get(key)] if isinstance(told, Mapping) else [str(told)]
    return "\n\n".join([*parts, *([f"How you are: {persona}"] if persona else [])])


def _call(action: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": value_of(action, "name"), "arguments": dict(value_of(action, "arguments"))}


def _compared(action: Mapping[str, Any]) -> dict[str, Any]:
    """A call that has to be made, with the arguments that count; of `compare_args` null, all."""
    call, compared = _call(action), action.get("compare_args")
    chosen = call["arguments"] if compared is None else {key: call["arguments"][key] for key in compared}
    return {**call, "arguments": chosen}


def _basis(criteria: Mapping[str, Any]) -> Sequence[str]:
    return criteria.get("reward_basis") or ()


def _initial(state: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool `service` and its scorer begin with."""
    tables = (state.get("initialization_data") or {}).get("agent_data") or {}
    actions = [
        {"name": value_of(each, "func_name"), "arguments": dict(value_of(each, "arguments"))}
        for each in state.get("initialization_actions") or ()
        if each.get("env_type") == "assistant"
    ]
    return {"initial": {"tables": tables, "actions": actions}} if tables or actions else {}


def read_tasks(path: Path) -> Iterator[Raw]:
    """The tasks that rows can express, with a column `split` where `split_tasks.json` lies next to them."""
    official = _official_splits(path.with_name("split_tasks.json"))
    for raw in read_raw(path):
        state, criteria = (raw.value.get(key) or {} for key in ("initial_state", "evaluation_criteria"))
        if criteria.get("actions") is not None and not state.get("message_history"):
            yield raw._replace(value=raw.value | {"split": official.get(str(raw.value.get("id")))}) if official else raw


def _official_splits(path: Path) -> dict[str, str]:
    """Each task's split, train or test; empty where there is no such file."""
    try:
        splits = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return {str(task): name for name in ("train", "test") for task in splits.get(name, ())}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            str(path), f"it cannot be read ({error})", 'Write {"train": [task, ...], "test": [...]}'
        ) from error


_ARGUMENTS: dict[str, dict[str, Any]] = {
    "--domain": {"default": "retail", "help": "default: %(default)s"},
    "--database": {"metavar": "FILE", "required": True, "help": "the domain's db.json"},
    "--policy": {"metavar": "FILE", "help": "the domain's policy, as the system message"},
}


def _prepared(options: dict[str, Any]) -> dict[str, Any]:
    load_domain(options["domain"])
    read_tables(options["database"])
    options["database"] = str(Path(options["database"]).expanduser().resolve())
    if path := options.pop("policy"):
        try:
            options["policy"] = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("--policy", f"{path} cannot be read ({error})", "Name a text file") from error
    return options


TAU2 = RawSet("tau2", to_row, agent_name="user_sim_agent", read=read_tasks, arguments=_ARGUMENTS, prepare=_prepared)
