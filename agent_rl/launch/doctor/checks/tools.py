"""Checks that the tool file loads, that environments work, and that the policy's code can be isolated."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from agent_rl.environments import load_environment
from agent_rl.errors import AgentRLError, FatalError
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.task import try_out
from agent_rl.preflight.check import Finding, check, problem, skipped, warning
from agent_rl.sandbox import PythonSandbox
from agent_rl.tools import ToolSpec

MULTI_TURN = "actor_rollout_ref.rollout.multi_turn"
KEY = f"{MULTI_TURN}.tool_config_path"
SANDBOXED = ("agent_rl.tools.builtin.python", "agent_rl.tools.builtin.sympy")


def tool_specs(case: Case) -> list[ToolSpec] | None:
    """Return the tools, or None if the file cannot be read, which `tool_file` reports."""
    try:
        return case.tools
    except AgentRLError:
        return None


@check("tools")
def tool_file(case: Case) -> Iterator[Finding]:
    """The tool file loads as in training, with classes, configs, environment variables, corpora and MCP servers."""
    if (path := case.tool_path) is None:
        yield skipped(f"no tool file is set ({KEY})")
        return
    name = case.shown(path)
    try:
        case.tools  # noqa: B018 - loads the tool file, and raises an error if that fails
    except FatalError:
        raise
    except AgentRLError as error:
        yield problem(f"{name}: {error}", "Start the service that the tool needs, or correct the file")
        return
    length = case.number(f"{MULTI_TURN}.max_tool_response_length", 256)
    if length <= 256 and not case.get("agent_rl.tools.max_result_tokens"):
        remedy = f"Set {MULTI_TURN}.max_tool_response_length, or agent_rl.tools.max_result_tokens"
        yield warning(f"results are cut at {length} characters (verl's default)", remedy, "tool results")


@check("tools")
def environments(case: Case) -> None:
    """The environments of the run work in a trial, and all samples of a row start from the same state."""
    for name, target in case.settings.environments.items():
        try_out(load_environment(name, target))


@check("tools")
def sandbox(case: Case) -> Finding | None:
    """If tools run the policy's code, this machine can isolate that code."""
    users = [spec for spec in tool_specs(case) or () if spec.cls.__module__ in SANDBOXED]
    if not users:
        return None
    names, report = ", ".join(spec.name for spec in users), asyncio.run(_probe())
    if report.isolated:
        return None
    missing = "; ".join(f"{layer}: {why}" for layer, why in report.missing.items())
    if all(spec.config.get("unsafe") for spec in users):
        return warning(f"{names} run the policy's code without isolation (unsafe: true)", missing)
    remedy = "Fix one of these, or set `unsafe: true` in the entry's config if you trust the code"
    return problem(f"this machine cannot isolate the code of {names}. {missing}", remedy)


async def _probe() -> Any:
    async with PythonSandbox() as sandbox:
        return await sandbox.probe()
