"""Ends a run on request: after the current step at the first signal, immediately at the second.

The trainer may run on another machine, so it polls a file in the run's folder. You can also create this file yourself.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_rl.verl_adapter.ending import STOP_FILE

STOPPED = 75
"""Exit status of a run that has ended early on request, which is `EX_TEMPFAIL` ("try again later")."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Aborted(SystemExit):
    """Raised after a signal, to clean up and to exit with the status that a shell would report."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.by = signal.Signals(signum).name


@dataclass(frozen=True)
class StoppedRun:
    """The last step of a run that has ended on request.

    Attributes:
        step: the last complete step.
        checkpoint: the step's checkpoint folder, or None if no step was complete.
        command: the command that resumes from this checkpoint.
    """

    step: int
    checkpoint: str | None
    command: str | None


class StopRequest:
    """A request to end a run, and the trainer's answer."""

    def __init__(self) -> None:
        self.can_wait: Callable[[], bool] = lambda: False
        """Whether the run may continue after the first signal, for example to finish a step; if not, it ends now."""
        self.asked: str | None = None
        """The source of the request, such as the name of a signal, or None if there is no request."""
        self.on_abort: Callable[[str], None] = lambda by: None
        """Called before the cleanup, with the name of the signal that ends the run immediately."""
        self._file: Path | None = None
        self._is_ending = False

    def begin(self, folder: Path) -> None:
        """Make later requests apply to the run in this folder."""
        self._file = folder / STOP_FILE
        self._file.unlink(missing_ok=True)

    def ask(self, by: str = "the caller") -> None:
        """Ask the run to end after its current step."""
        self.asked = by
        if self._file is not None:
            self._file.touch()

    def answer(self) -> StoppedRun | None:
        """Return and remove the trainer's answer, or return None if the run has not ended early."""
        if self._file is None or not self._file.exists():
            return None
        text = self._file.read_text()
        self._file.unlink()
        return StoppedRun(**json.loads(text)) if text.startswith("{") else None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Turn Ctrl-C, SIGTERM and the closing of the terminal into requests; `nohup` is respected."""
        handlers = {signum: signal.getsignal(signum) for signum in SIGNALS}
        for signum, handler in handlers.items():
            if handler != signal.SIG_IGN:
                signal.signal(signum, self._on_signal)
        try:
            yield
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, frame: Any) -> None:
        if self._is_ending or (self.asked and signum == signal.SIGHUP):  # closing a terminal sends two signals
            return
        if not self.asked and self.can_wait():
            self.ask(signal.Signals(signum).name)
            return
        self._is_ending = True
        raise Aborted(signum)
