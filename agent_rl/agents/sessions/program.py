"""Runs the user's program for one row: a command, a Python function, or an HTTP endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from agent_rl.errors import ConfigError
from agent_rl.settings.errors import Place
from agent_rl.settings.gateway import GatewaySettings
from agent_rl.settings.importing import find_object
from agent_rl.settings.secrets import is_secret_variable
from agent_rl.work.concurrency import OutOfTime, gate, in_thread, within

__all__ = ["ProgramEnd", "run_program"]

KEY = "agent_rl.gateway"
TAIL = 2_000
"""Characters of a program's output that are kept when it fails."""


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended; `problem` is None after success."""

    problem: str | None = None
    bug: str | None = None
    """The last line of a traceback, by which equal failures are recognised."""


async def run_program(settings: GatewaySettings, row: Mapping[str, Any], base_url: str, key: str) -> ProgramEnd:
    """Run the program of a row until it ends, at most `timeout_s` seconds.

    Args:
        settings: the section `agent_rl.gateway`.
        row: the row's `prompt` and `extra_info`.
        base_url: address of the gateway, without `/v1`.
        key: the API key that names the session.

    Raises:
        ConfigError: no program is configured.
    """
    command = (row.get("extra_info") or {}).get("program") or settings.command
    async with gate(KEY, settings.programs):
        try:
            if command is not None:
                return await _run_command(str(command), settings, row, base_url, key)
            if settings.function is not None:
                return await within(settings.timeout_s, _call(settings.function, row, f"{base_url}/v1", key))
            if settings.url is not None:
                return await within(settings.timeout_s, _post(settings.url, row, f"{base_url}/v1", key))
        except OutOfTime:
            return ProgramEnd(f"the program did not end within {settings.timeout_s:g} s")
    raise ConfigError(KEY, "no program is set", "Set agent_rl.gateway.command, function or url")


async def _run_command(
    command: str, settings: GatewaySettings, row: Mapping[str, Any], base_url: str, key: str
) -> ProgramEnd:
    with tempfile.TemporaryDirectory(prefix="agent_rl_row_") as folder:
        file, output = Path(folder) / "row.json", Path(folder) / "output.txt"
        file.write_text(json.dumps(row, ensure_ascii=False, default=str), encoding="utf-8")
        environment = {
            **{name: text for name, text in os.environ.items() if not _is_hidden(name, settings)},
            **{"OPENAI_BASE_URL": f"{base_url}/v1", "OPENAI_API_KEY": key},
            **{"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": key},
            **{"AGENT_RL_GATEWAY": base_url, "AGENT_RL_ROW_FILE": str(file), "OPENAI_AGENTS_DISABLE_TRACING": "1"},
        }
        with output.open("wb") as stream:
            process = await asyncio.create_subprocess_shell(
                command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=stream, stderr=stream,
                start_new_session=True,
            )  # fmt: skip
        try:
            await within(settings.timeout_s, process.wait())
        finally:  # also when the episode is cancelled: the program's children end with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode == 0:
            return ProgramEnd()
        text = output.read_text(encoding="utf-8", errors="replace").strip()[-TAIL:]
        last = text.splitlines()[-1] if text else ""
        problem = f"the program ended with exit code {process.returncode}: {last}"
        return ProgramEnd(problem, last if "Traceback (most recent call last)" in text else None)


def _is_hidden(name: str, settings: GatewaySettings) -> bool:
    return is_secret_variable(name) and name not in settings.environment


async def _call(name: str, row: Mapping[str, Any], base_url: str, key: str) -> ProgramEnd:
    function = find_object(name, Place(f"{KEY}.function"))
    arguments = {"row": dict(row), "base_url": base_url, "api_key": key}
    try:
        if inspect.iscoroutinefunction(function):
            await function(**arguments)
        else:
            await in_thread(lambda: function(**arguments))
    except Exception as error:  # noqa: BLE001 - the program's failure is scored, never charged to the infrastructure
        last = traceback.extract_tb(error.__traceback__)[-1]
        bug = f"{type(error).__name__} at {last.filename}:{last.lineno}"
        return ProgramEnd(f"the program failed: {type(error).__name__}: {error} ({bug})", bug)
    return ProgramEnd()


async def _post(url: str, row: Mapping[str, Any], base_url: str, key: str) -> ProgramEnd:
    async with httpx.AsyncClient(timeout=None) as client:
        try:
            answer = await client.post(url, json={"row": dict(row), "base_url": base_url, "api_key": key})
        except httpx.HTTPError as error:
            return ProgramEnd(f"{url} does not answer: {type(error).__name__}: {error}")
    return (
        ProgramEnd() if answer.is_success else ProgramEnd(f"{url} answered {answer.status_code}: {answer.text[:200]}")
    )
