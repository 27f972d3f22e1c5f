"""Runs the user's program for one row: a command, a Python function, or an HTTP endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from agent_rl.agents.sessions.worker import IMPORTED, TAIL
from agent_rl.errors import ConfigError
from agent_rl.settings.secrets import is_secret_variable
from agent_rl.settings.sections import GatewaySettings
from agent_rl.work.concurrency import OutOfTime, gate, in_thread, within

KEY = "agent_rl.gateway"
PACKAGE = Path(__file__).parents[2]
"""The folder of agent_rl. For GPU packages, CPU runs add replacements inside this folder to Python's path."""
LIMITS = "ulimit -c 0 2>/dev/null; ulimit -f 8388608 2>/dev/null; "
"""A prefix for a shell command that turns off core dumps and limits files to 4 GiB."""
FRAME = re.compile(r'^ +File "(.+)", line (\d+)', re.MULTILINE)
"""Matches a traceback line that gives a file and a line number."""
ERROR = re.compile(r'^ +File "[^\n]+", line \d.*?\n((\S[^:\n]*).*)', re.MULTILINE | re.DOTALL)
"""Matches the rest of a traceback, starting at its first `File` line; the groups are the exception and its type."""
GROUP = re.compile(r"^ *(\| |\+-.*)", re.MULTILINE)
"""Characters that an exception group's traceback adds before each line of the tracebacks inside the group."""
INSTALLED = re.compile(rf"^<|^{re.escape(str(PACKAGE))}/|site-packages|/lib/python")
"""Matches the paths of files that the user did not write."""


@dataclass(frozen=True, slots=True)
class ProgramEnd:
    """How a program ended; `problem` is None if the program succeeded."""

    problem: str | None = None
    bug: str | None = None
    """The type and the place of an exception, by which repeated failures are recognized."""


@functools.cache
def address_for(url: str | None) -> str:
    """Return the address at which the endpoint `url` reaches this machine; without a URL, return the loopback address.

    Raises:
        ConfigError: the host of the URL cannot be reached.
    """
    host = httpx.URL(url).host if url else "127.0.0.1"
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # sends nothing, but makes the system choose a network interface
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"{KEY}.url", f"the host {host!r} cannot be reached ({error})", "Correct the URL") from None


async def run_program(settings: GatewaySettings, row: Mapping[str, Any], base_url: str, key: str) -> ProgramEnd:
    """Run the user's program for a row until it ends, for at most `timeout_s` seconds.

    Args:
        settings: the `agent_rl.gateway` section.
        row: the row's `prompt` and `extra_info`.
        base_url: address of the gateway, without `/v1`.
        key: the API key that identifies the session.

    Raises:
        ConfigError: no program is configured.
    """
    command = (row.get("extra_info") or {}).get("program") or settings.command
    async with gate(KEY, settings.programs):
        try:
            if command is not None:
                return await _run_command(str(command), settings, row, base_url, key)
            if settings.function is not None:
                arguments = {"row": dict(row), "base_url": f"{base_url}/v1", "api_key": key}
                async with gate(f"{KEY}.function", 1):
                    worker = await in_thread(function_worker, settings)
                return await within(settings.timeout_s, worker.call(arguments, _addresses(base_url, key)))
            if settings.url is not None:
                return await within(settings.timeout_s, _post(settings.url, row, f"{base_url}/v1", key))
        except OutOfTime:
            return ProgramEnd(f"the program did not finish within {settings.timeout_s:g} s")
    raise ConfigError(KEY, "no program is set", "Set agent_rl.gateway.command, function or url")


async def _run_command(
    command: str, settings: GatewaySettings, row: Mapping[str, Any], base_url: str, key: str
) -> ProgramEnd:
    with tempfile.TemporaryDirectory(prefix="agent_rl_row_") as folder:
        file, output = Path(folder) / "row.json", Path(folder) / "output.txt"
        file.write_text(json.dumps(row, ensure_ascii=False, default=str), encoding="utf-8")
        environment = {**_environment(settings), **_addresses(base_url, key), "AGENT_RL_ROW_FILE": str(file)}
        with output.open("wb") as stream:
            process = await asyncio.create_subprocess_shell(
                LIMITS + command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=stream, stderr=stream,
                start_new_session=True,
            )  # fmt: skip
        try:
            await within(settings.timeout_s, process.wait())
        finally:  # the program's children are killed even if the episode is canceled
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode == 0:
            return ProgramEnd()
        with output.open("rb") as written:
            written.seek(max(0, output.stat().st_size - TAIL))
            text = written.read().decode(errors="replace")
        return _crash(f"the program exited with code {process.returncode}", text)


def _crash(problem: str, output: str) -> ProgramEnd:
    """Return how a program with this output ended; a bug's place is the last traceback line from the user's files."""
    trace = GROUP.sub("", output).rpartition("Traceback (most recent call last):")[2]
    text, bug = output.strip().rpartition("\n")[2], None
    if error := ERROR.search(trace):
        text, frames = error[1].strip()[:2000], FRAME.findall(trace)
        own = [frame for frame in frames if not INSTALLED.search(frame[0])]
        bug = f"{error[2]} at {':'.join((own or frames)[-1])}"
    return ProgramEnd(f"{problem}: {text}" + (f" ({bug})" if bug else ""), bug)


def _environment(settings: GatewaySettings) -> dict[str, str]:
    """Return the environment variables, except secrets that no setting names, and without agent_rl in PYTHONPATH."""
    named = settings.environment
    shown = {name: text for name, text in os.environ.items() if name in named or not is_secret_variable(name)}
    paths = filter(None, shown.get("PYTHONPATH", "").split(os.pathsep))
    own = os.pathsep.join(path for path in paths if not Path(path).is_relative_to(PACKAGE))
    return {**shown, "PYTHONPATH": own, "OPENAI_AGENTS_DISABLE_TRACING": "1"}


def _addresses(base_url: str, key: str) -> dict[str, str]:
    """Return the environment variables from which clients read the policy's address, which needs no proxy."""
    openai = {"OPENAI_BASE_URL": f"{base_url}/v1", "OPENAI_API_KEY": key}
    anthropic = {"ANTHROPIC_BASE_URL": base_url, "ANTHROPIC_API_KEY": key, "AGENT_RL_GATEWAY": base_url}
    known = os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")
    direct = known if known == "*" else ",".join(filter(None, (known, httpx.URL(base_url).host)))
    return {**openai, **anthropic, "no_proxy": direct, "NO_PROXY": direct}


class FunctionWorker:
    """A process that has imported a function, and that exits when its parent process exits.

    Args:
        python: the interpreter.
        function: `path/to/file.py:name` or `package.module.name`.
        environment: environment variables for the process.
        limit_s: time limit for the import in seconds.

    Raises:
        ConfigError: the interpreter does not exist or cannot import the function.
    """

    def __init__(self, python: str, function: str, environment: Mapping[str, str], limit_s: float) -> None:
        if (path := shutil.which(Path(python).expanduser())) is None:
            remedy = "Give the path of an interpreter, for example .venv/bin/python"
            raise ConfigError(f"{KEY}.python", f"there is no interpreter {python!r}", remedy)
        self._control, theirs = socket.socketpair()
        script = Path(__file__).with_name("worker.py")
        with theirs:
            self.process = subprocess.Popen(
                ["sh", "-c", f'{LIMITS}exec "$@"', "sh", path, script, function, str(theirs.fileno())],
                pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True,
            )  # fmt: skip
        self._control.settimeout(limit_s)
        try:
            output = self._control.recv(2**16).decode() or "it exited"
        except TimeoutError:
            output = f"the import took more than {limit_s:g} s"
        if output != IMPORTED:
            self.close()
            remedy = "Install what the file imports, and create model clients inside the function"
            problem = _crash(f"{path} cannot import {function!r}", output).problem
            raise ConfigError(f"{KEY}.function", str(problem), remedy)

    def close(self) -> None:
        """End the process."""
        self._control.close()
        self.process.kill()
        self.process.wait()

    async def call(self, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> ProgramEnd:
        """Call the function in a fork, which is killed with its children at the end, or when the call is canceled."""
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):  # a dead worker is noticed later, when no answer arrives
            socket.send_fds(self._control, [b"."], [theirs.fileno()])
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=16 * TAIL)  # for escaped emojis
        process, answer = 0, b""
        try:
            writer.write(json.dumps({"arguments": arguments, "environment": environment}, default=str).encode() + b"\n")
            process = int(await reader.readline() or 0)
            answer = await reader.readline()
        except ConnectionError:  # the worker or the fork has died
            pass
        finally:
            writer.close()
            with contextlib.suppress(ProcessLookupError):
                if process:
                    os.killpg(process, signal.SIGKILL)
        output = json.loads(answer or '"its process died"')
        return _crash("the program failed", output) if output else ProgramEnd()


_workers: dict[tuple[str, str], FunctionWorker] = {}


def function_worker(settings: GatewaySettings) -> FunctionWorker:
    """Return this process's worker for the configured function; the first call starts the worker.

    Raises:
        ConfigError: the interpreter does not exist or cannot import the function.
    """
    key = settings.python or sys.executable, str(settings.function)
    if key in _workers and _workers[key].process.poll() is not None:
        _workers.pop(key).close()
    if key not in _workers:
        _workers[key] = FunctionWorker(*key, _environment(settings), settings.timeout_s)
    return _workers[key]


async def _post(url: str, row: Mapping[str, Any], base_url: str, key: str) -> ProgramEnd:
    body = json.dumps({"row": row, "base_url": base_url, "api_key": key}, default=str)
    async with httpx.AsyncClient(timeout=None, headers={"content-type": "application/json"}) as client:
        try:
            answer = await client.post(url, content=body)
        except httpx.HTTPError as error:
            return ProgramEnd(f"{url} does not answer: {type(error).__name__}: {error}")
    return ProgramEnd(None if answer.is_success else f"{url} answered {answer.status_code}: {answer.text[:200]}")
