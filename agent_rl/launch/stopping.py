"""Ends a run when it is asked to: after its step at the first signal, at once at the second.

The trainer may run on another machine: what it looks at is a file in the run's folder. Whoever makes that file asks as
well.
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

__all__ = ["STOPPED", "Aborted", "StopRequest", "StoppedRun"]

STOPPED = 75
"""Exit status of a run that has ended early as it was asked to: `EX_TEMPFAIL`, try again later."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Aborted(SystemExit):
    """A signal ends this process, which cleans up on its way; its exit status is that of a shell."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.by = signal.Signals(signum).name


@dataclass(frozen=True)
class StoppedRun:
    """Where a run has ended that was asked to.

    Attributes:
        step: the last complete one.
        checkpoint: its folder; None when there is none, because no step was complete.
        command: that resumes from there.
    """

    step: int
    checkpoint: str | None
    command: str | None


class StopRequest:
    """The wish that a run ends, and what the trainer answers."""

    def __init__(self) -> None:
        self.can_wait: Callable[[], bool] = lambda: False
        """Whether there is something to wait for; otherwise the first signal ends the run at once."""
        self.asked: str | None = None
        """Who has asked: the name of a signal."""
        self.on_abort: Callable[[str], None] = lambda by: None
        """Told the name of the signal that ends the run at once, before that takes its seconds."""
        self._file: Path | None = None
        self._is_ending = False

    def begin(self, folder: Path) -> None:
        """From now on requests are for the run in this folder."""
        self._file = folder / STOP_FILE
        self._file.unlink(missing_ok=True)

    def ask(self, by: str = "the caller") -> None:
        """Let the run end after the step that it is in."""
        self.asked = by
        if self._file is not None:
            self._file.touch()

    def answer(self) -> StoppedRun | None:
        """What the trainer has answered, once; None if it has not ended early."""
        if self._file is None or not self._file.exists():
            return None
        text = self._file.read_text()
        self._file.unlink()
        return StoppedRun(**json.loads(text)) if text.startswith("{") else None

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Let Ctrl-C, SIGTERM and the end of the terminal ask; `nohup` is respected."""
        before = {each: signal.getsignal(each) for each in SIGNALS}
        for each, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(each, self._on_signal)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _on_signal(self, signum: int, frame: Any) -> None:
        if self._is_ending or (self.asked and signum == signal.SIGHUP):  # what ends a session sends two signals
            return
        if not self.asked and self.can_wait():
            self.ask(signal.Signals(signum).name)
            return
        self._is_ending = True
        raise Aborted(signum)
