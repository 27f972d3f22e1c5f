"""Tasks from tau2-bench, as rows: a policy, a simulated customer with instructions, and the expected database changes.

The ground truth is for the `service_state` scorer: domain, database and the gold actions, which are run on it; the
`service` tool supplies the tools, with the same database. Assertions that need a judge (`nl_assertions`), or that
concern the customer's own devices, are not scored but kept in `extra_info`. Tasks without gold actions, and tasks that
start in the middle of a conversation, are skipped.
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
    """Return the row of a task.

    Args:
        example: a task from tau2-bench.
        domain: domain of the task, part of `data_source`.
        database: path of the domain's `db.json`.
        policy: text of the system message; None: no system message.

    Raises:
        ConfigError: a key is missing or cannot be used; the error names it.
    """
    scenario = value_of(example, "user_scenario")
    criteria = example.get("evaluation_criteria") or {}
    actions = [_call(action) for action in value_of(criteria, "actions")]
    initial = _initial(example.get("initial_state") or {})
    required = [_required_call(action) for action in criteria["actions"]] if "ACTION" in _basis(criteria) else []
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
    """Return what the customer knows and wants, as text."""
    if not isinstance(scenario, Mapping) or not scenario.get("instructions"):
        raise ConfigError("column user_scenario", "it has no instructions", "Use tasks from tau2-bench")
    instructions, persona = scenario["instructions"], scenario.get("persona")
    keys = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    is_text = not isinstance(instructions, Mapping)
    parts = [str(instructions)] if is_text else [str(instructions[key]) for key in keys if instructions.get(key)]
    return "\n\n".join([*parts, *([f"How you are: {persona}"] if persona else [])])


def _call(action: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": value_of(action, "name"), "arguments": dict(value_of(action, "arguments"))}


def _required_call(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return a required call with the arguments in `compare_args`, or all arguments if it is null."""
    call, names = _call(action), action.get("compare_args")
    arguments = call["arguments"] if names is None else {key: call["arguments"][key] for key in names}
    return {**call, "arguments": arguments}


def _basis(criteria: Mapping[str, Any]) -> Sequence[str]:
    return criteria.get("reward_basis") or ()


def _initial(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the initial state for the `service` tool and its scorer; empty if the database is used as it is."""
    tables = (state.get("initialization_data") or {}).get("agent_data") or {}
    actions = [
        {"name": value_of(action, "func_name"), "arguments": dict(value_of(action, "arguments"))}
        for action in state.get("initialization_actions") or ()
        if action.get("env_type") == "assistant"
    ]
    return {"initial": {"tables": tables, "actions": actions}} if tables or actions else {}


def read_tasks(path: Path) -> Iterator[Raw]:
    """Yield the tasks that rows can express, with a `split` column if `split_tasks.json` is next to the file."""
    official = _official_splits(path.with_name("split_tasks.json"))
    for raw in read_raw(path):
        state, criteria = (raw.value.get(key) or {} for key in ("initial_state", "evaluation_criteria"))
        if criteria.get("actions") is not None and not state.get("message_history"):
            yield raw._replace(value=raw.value | {"split": official.get(str(raw.value.get("id")))}) if official else raw


def _official_splits(path: Path) -> dict[str, str]:
    """Return the split of each task, train or test; empty if the file does not exist."""
    try:
        splits = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return {str(task): name for name in ("train", "test") for task in splits.get(name, ())}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            str(path), f"it cannot be read ({error})", 'Write {"train": [task, ...], "test": [...]}'
        ) from error


_ARGUMENTS: dict[str, dict[str, Any]] = {
    "--domain": {"default": "retail", "help": "Domain of the tasks, default: %(default)s"},
    "--database": {"metavar": "FILE", "required": True, "help": "The domain's db.json"},
    "--policy": {"metavar": "FILE", "help": "Text of the domain's policy, which becomes the system message"},
}


def _prepare(options: dict[str, Any]) -> dict[str, Any]:
    load_domain(options["domain"])
    read_tables(options["database"])
    options["database"] = str(Path(options["database"]).expanduser().resolve())
    if path := options.pop("policy"):
        try:
            options["policy"] = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("--policy", f"{path} cannot be read ({error})", "Pass a text file") from error
    return options


TAU2 = RawSet("tau2", to_row, agent_name="user_sim_agent", read=read_tasks, arguments=_ARGUMENTS, prepare=_prepare)
