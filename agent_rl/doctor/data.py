"""Checks of the rows: the row contract, how many there are, and whether what they name exists."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from agent_rl.agents.agents import AGENTS, make_user
from agent_rl.agents.registry import BUILT_IN
from agent_rl.data.rows import check_rows
from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.doctor.tables import Table
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings import AgentRLSettings

__all__ = ["agents", "files", "row_count", "total_steps"]

VERLS = ("single_turn_agent", "tool_agent")
"""The loops that verl 0.9.1 itself registers."""


def files(case: Case) -> Iterator[Finding]:
    """Each file is there, and its rows keep the contract of `agent_rl.data.rows`."""
    for key, tables in (("data.train_files", case.train), ("data.val_files", case.val)):
        for table in tables:
            yield _contract(case, key, table)
        whole = [table for table in tables if table.error is None]
        for table in whole[1:]:
            if table.columns != whole[0].columns:
                differing = sorted(dict(table.columns.items() ^ whole[0].columns.items()))
                text = f"{table.path} and {whole[0].path} differ in {', '.join(differing)}: verl cannot join them"
                yield problem(key, text, "Give all files the same columns and types")
        if not tables:
            yield skipped(key, "no parquet file of this machine is named")


def row_count(case: Case) -> Iterator[Finding]:
    """There are enough rows for a step: verl drops an incomplete batch, also when it is the only one."""
    subject = "training steps"
    if not _complete(case):
        yield skipped(subject, "the training rows cannot be counted")
        return
    rows, batch = train_rows(case), int(case.get("data.train_batch_size", 1))
    epochs, steps = int(case.get("trainer.total_epochs", 1)), total_steps(case)
    if rows < batch:
        text = f"{rows} rows are fewer than data.train_batch_size={batch}: no step is ever made"
        yield problem(subject, text, f"Set data.train_batch_size to {rows} or less, or add rows")
    else:
        asked = case.get("trainer.total_training_steps")
        why = "trainer.total_training_steps" if asked else f"{rows} rows // {batch} in a batch * {epochs} epochs"
        yield ok(subject, f"{steps} ({why})")
    val = sum(table.count for table in case.val)
    if case.val and not val:
        yield problem("data.val_files", "there are no rows to validate on", "Add rows")


def agents(case: Case) -> Iterator[Finding]:
    """The agent loops that rows name are registered."""
    subject, default = "agent loops", _default_agent(case)
    known = {*BUILT_IN, *VERLS, *_of_config(case), *_of_script(case)}
    named = Counter(str(row.get("agent_name") or default) for table in (*case.train, *case.val) for row in table.rows)
    if not named:
        known_default = default in known
        text = f"{default} (rollout.agent.default_agent_loop)"
        yield (
            ok(subject, text)
            if known_default
            else problem(subject, f"{text} is not registered", did_you_mean(default, known))
        )
        return
    for name in sorted(set(named) - known):
        remedy = f"{did_you_mean(name, known)} One of your own: name its script with --script"
        yield problem(subject, f"{name!r} ({named[name]} rows) is not registered", remedy)
    if set(named) <= known:
        yield ok(subject, ", ".join(f"{name} ({count} rows)" for name, count in named.most_common()))
    yield from _users(case, default)
    toolless = [name for name in named if name == "single_turn_agent"]
    if toolless and case.get("actor_rollout_ref.rollout.multi_turn.tool_config_path"):
        text = "single_turn_agent runs, which never calls the tools that are configured"
        yield warning(subject, text, "Set actor_rollout_ref.rollout.agent.default_agent_loop=react_agent")


def _users(case: Case, default: str) -> Iterator[Finding]:
    """The first row whose simulated user cannot be made."""
    settings = AgentRLSettings.from_config(case.config)
    for row in [row for table in (*case.train, *case.val) for row in table.rows]:
        name = str(row.get("agent_name") or default)
        try:
            if name in AGENTS:
                make_user(name, settings, row.get("extra_info"))
        except ConfigError as error:
            yield problem("simulated users", f"{error.key}: {error.problem}", error.remedy)
            return


def train_rows(case: Case) -> int:
    """Rows that are trained on, before long prompts are left out."""
    rows, most = sum(table.count for table in case.train), int(case.get("data.train_max_samples", -1))
    return min(rows, most) if most > 0 else rows


def total_steps(case: Case) -> int:
    """Steps of the whole run; 0 when the rows cannot be counted."""
    if asked := case.get("trainer.total_training_steps"):
        return int(asked)
    if not _complete(case):
        return 0
    return train_rows(case) // int(case.get("data.train_batch_size", 1)) * int(case.get("trainer.total_epochs", 1))


def _complete(case: Case) -> bool:
    return bool(case.train) and all(table.error is None for table in case.train)


def _contract(case: Case, key: str, table: Table) -> Finding:
    if table.error is not None:
        return problem(key, f"{case.shown(table.path)}: {table.error.problem}", table.error.remedy)
    default = _default_agent(case)
    try:
        check_rows([{"agent_name": default, **row} for row in table.rows], source=case.shown(table.path))
    except ConfigError as error:
        return problem(key, f"{error.key}: {error.problem}", error.remedy)
    looked = "" if len(table.rows) == table.count else f", the first {len(table.rows)} looked at"
    return ok(key, f"{case.shown(table.path)}: {table.count} rows{looked}")


def _default_agent(case: Case) -> str:
    return str(case.get("actor_rollout_ref.rollout.agent.default_agent_loop", "single_turn_agent"))


def _of_config(case: Case) -> set[str]:
    """Names in the file of `agent_loop_config_path`."""
    key = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
    path = case.get(key)
    if not path:
        return set()
    try:
        entries: Any = OmegaConf.load(case.path(path))
        return {str(entry["name"]) for entry in entries}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(key, f"{path} cannot be read ({error})", "Write a list of {name, _target_}") from error


def _of_script(case: Case) -> set[str]:
    """Names that the user's script registers, read from its text: it is not run."""
    if case.script is None:
        return set()
    try:
        tree = ast.parse(case.script.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ConfigError("--script", f"{case.script} cannot be read ({error})", "Name a Python file") from error
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    found = [call.args[0] for call in calls if re.search(r"register_agent_loop$", ast.unparse(call.func))]
    return {name.value for name in found if isinstance(name, ast.Constant) and isinstance(name.value, str)}
