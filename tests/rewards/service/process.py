"""A real service as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType

START_S = 120


class Service:
    """`agent-rl reward serve`; use it as a context manager. A killed one can be started again, on the same port.

    Args:
        config: its YAML file.
        words: KEY=VALUE words.
        env: beside this process's environment.
    """

    def __init__(self, config: Path, *words: str, env: dict[str, str] | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = config.with_suffix(".log")
        command = [sys.executable, "-m", "agent_rl.cli.main", "reward", "serve", "--config", str(config)]
        self._command = [*command, f"port={self.port}", *words]
        self._env = {**os.environ, **(env or {})}

    def __enter__(self) -> "Service":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.kill()

    def start(self) -> None:
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._env, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == f"serving rewards at {self.url}\n", self.log

    def kill(self) -> None:
        """As if the machine had died."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        with self.process:  # closes the pipe, and waits
            return self.process.wait(START_S)

    @property
    def log(self) -> str:
        return self._log.read_text()
