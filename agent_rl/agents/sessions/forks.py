"""`FunctionWorker`: a process of another Python that has imported the user's function, and forks for each call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError

__all__ = ["FunctionWorker"]

DIED = {"problem": "its process died"}


class FunctionWorker:
    """A process that has imported a function; it ends with the process that started it.

    Args:
        python: the interpreter.
        function: `path/to/file.py:name` or `package.module.name`.
        environment: environment variables of the process.
        limit_s: seconds that the import may take.

    Raises:
        ConfigError: there is no such interpreter, or it cannot import the function.
    """

    def __init__(self, python: str, function: str, environment: Mapping[str, str], limit_s: float) -> None:
        if (path := shutil.which(Path(python).expanduser())) is None:
            remedy = "Give the path of an interpreter, for example .venv/bin/python"
            raise ConfigError("agent_rl.gateway.python", f"there is no interpreter {python!r}", remedy)
        self._control, theirs = socket.socketpair()
        script = Path(__file__).with_name("worker.py")
        with theirs:
            self.process = subprocess.Popen(
                [path, script, function, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._control.settimeout(limit_s)
        try:
            problem = json.loads(self._control.recv(2**16) or '{"problem": "it ended"}').get("problem")
        except TimeoutError:
            problem = f"the import took more than {limit_s:g} s"
        if problem:
            self.close()
            remedy = "Install there what the file imports, and create clients of the model in the function"
            raise ConfigError("agent_rl.gateway.function", f"{path} cannot import {function!r}: {problem}", remedy)

    def close(self) -> None:
        """End the process."""
        self._control.close()
        self.process.kill()
        self.process.wait()

    async def call(self, arguments: Mapping[str, Any], environment: Mapping[str, str]) -> Mapping[str, str]:
        """Call the function in a fork, which is killed with its children at the end, or when the call is cancelled.

        Returns:
            `problem` and `bug` if the function failed; see `worker.failure`.
        """
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):  # the worker has died: the call gets no answer
            socket.send_fds(self._control, [b"."], [theirs.fileno()])
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        process = 0
        try:
            writer.write(json.dumps({"arguments": arguments, "environment": environment}, default=str).encode() + b"\n")
            process = int(await reader.readline() or 0)
            answer = await reader.readline()
            return json.loads(answer) if answer else DIED  # type: ignore[no-any-return]
        except ConnectionError:
            return DIED
        finally:
            writer.close()
            with contextlib.suppress(ProcessLookupError):
                if process:
                    os.killpg(process, signal.SIGKILL)
