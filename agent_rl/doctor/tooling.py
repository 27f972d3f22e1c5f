"""Checks of the tools: the tool file as training reads it, what its tools need, and what the rows ask of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.errors import AgentRLError, ConfigError, did_you_mean
from agent_rl.sandbox import PythonSandbox
from agent_rl.tools import ToolSpec, load_tools
from agent_rl.tools.inspection import signature

__all__ = ["rows_and_tools", "sandbox", "tool_file", "tool_path"]

KEY = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
SANDBOXED = ("agent_rl.tools.builtin.python", "agent_rl.tools.builtin.sympy")


def tool_path(case: Case) -> Path | None:
    """The tool file as verl finds it: from the working directory, else beside its own package; None: none is set."""
    named = case.get(KEY)
    if not named:
        return None
    path = case.folder / Path(str(named)).expanduser()
    spec = find_spec("verl")
    if not path.exists() and spec and spec.origin and not Path(named).is_absolute():
        package = Path(spec.origin).parent
        path = next((place / named for place in (package.parent, package) if (place / named).exists()), path)
    return path


def tool_file(case: Case) -> Iterator[Finding]:
    """The file is read as training reads it: classes, configs, environment variables, corpora, MCP servers."""
    path = tool_path(case)
    if path is None:
        yield skipped("tool file", f"none is set ({KEY})")
        return
    try:
        specs = load_tools(path)
    except ConfigError as error:
        place = "" if error.key.startswith(str(path)) else f"{case.shown(path)}: "  # a secret knows only its variable
        yield problem("tool file", f"{place}{error.key}: {error.problem}", error.remedy)
    except AgentRLError as error:
        yield problem("tool file", f"{case.shown(path)}: {error}", "Start what the tool needs, or mend the file")
    else:
        yield ok("tool file", f"{case.shown(path)}: {', '.join(signature(spec) for spec in specs)}")
        yield from _result_length(case)


def sandbox(case: Case) -> Iterator[Finding]:
    """Where tools run the policy's code, this machine offers isolation for it."""
    users = [spec for spec in _specs(case) or () if spec.cls.__module__ in SANDBOXED]
    if not users:
        return
    names = ", ".join(spec.name for spec in users)
    report = asyncio.run(_probe())
    if report.isolated:
        yield ok("sandbox", f"for {names}: {', '.join(report.layers)} hold")
        return
    unsafe = all(spec.config.get("unsafe") for spec in users)
    missing = "; ".join(f"{layer}: {why}" for layer, why in report.missing.items())
    if unsafe:
        yield warning("sandbox", f"{names} run the policy's code without isolation (unsafe: true)", missing)
    else:
        remedy = "Mend one of these, or set `unsafe: true` in the entry's config if you trust the code"
        yield problem("sandbox", f"this machine cannot isolate the code of {names}. {missing}", remedy)


def rows_and_tools(case: Case) -> Iterator[Finding]:
    """Tools that rows name in `extra_info.tool_selection` and `tools_kwargs` are in the tool file."""
    specs = _specs(case)
    if specs is None:
        return
    known = [spec.name for spec in specs]
    asked = Counter(name for row in _rows(case) for name in _names(row.get("extra_info") or {}))
    if not asked:
        return
    unknown = sorted(set(asked) - set(known))
    for name in unknown:
        yield problem(
            "tools of the rows", f"{asked[name]} rows name {name!r}, which is not configured", did_you_mean(name, known)
        )
    if not unknown:
        yield ok("tools of the rows", ", ".join(f"{name} ({count} rows)" for name, count in asked.most_common()))


def _rows(case: Case) -> Iterator[Mapping[str, Any]]:
    for table in (*case.train, *case.val):
        yield from table.rows


def _names(info: Mapping[str, Any]) -> set[str]:
    given = info.get("tools_kwargs") or {}
    return {*(info.get("tool_selection") or ()), *(name for name, value in given.items() if value is not None)}


def _specs(case: Case) -> list[ToolSpec] | None:
    """The tools; None when the file cannot be read, which is a finding of its own."""
    path = tool_path(case)
    try:
        return load_tools(path) if path else []
    except AgentRLError:
        return None


async def _probe() -> Any:
    async with PythonSandbox() as sandbox:
        return await sandbox.probe()


def _result_length(case: Case) -> Iterator[Finding]:
    """Results are cut at 256 characters by default."""
    multi_turn = "actor_rollout_ref.rollout.multi_turn"
    length = int(case.get(f"{multi_turn}.max_tool_response_length", 256))
    if length <= 256 and not case.get("agent_rl.tools.max_result_tokens"):
        text = f"results are cut at {length} characters (verl's default)"
        yield warning(
            "tool results", text, f"Set {multi_turn}.max_tool_response_length, or agent_rl.tools.max_result_tokens"
        )
