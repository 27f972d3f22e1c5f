"""`Display`: shows a run in a terminal, a file or a pipe, as a panel, as lines, or as JSON.

A run continues if its display fails. Lines replace a panel that fails, and output that cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from typing_extensions import override

from agent_rl.launch.output import bare, command, step_line
from agent_rl.launch.panel import RunPanel
from agent_rl.launch.run_progress import RunProgress
from agent_rl.launch.stopping import STOPPED, StoppedRun
from agent_rl.work.text import named

GONE = (errno.EPIPE, errno.EIO, errno.EBADF)
"""Error numbers which mean that the terminal, or the process that reads the output, is gone."""


def _ignore_errors(event: Callable[..., None]) -> Callable[..., None]:
    """Let the run continue when the display of an event fails."""

    @functools.wraps(event)
    def survivor(self: Display, *args: Any, **kwargs: Any) -> None:
        try:
            event(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the run matters more than its display; the user sees the error
            self.fail(error)

    return survivor


class Display:
    """Shows the events of a run; each kind of event has a method.

    Args:
        shown: `panel`, `lines` or `verl` (every line of the log); None means the panel in a color terminal that can
            show it, otherwise lines.
        stream: the output; None means standard output.
    """

    def __init__(self, shown: str | None = None, stream: TextIO | None = None) -> None:
        self.stream = stream
        self.progress = RunProgress()
        self._shows_log = shown == "verl"
        self._panel: RunPanel | None = None
        self._asked = False
        out = stream or sys.stdout
        console = Console(file=out, force_terminal=out.isatty(), force_jupyter=False, highlight=False, emoji=False)
        can_move = console.is_terminal and not console.is_dumb_terminal and console.encoding.startswith("utf")
        if can_move and (shown == "panel" or (shown is None and not console.no_color)):
            self._panel = RunPanel(self.progress, console)

    @_ignore_errors
    def note(self, text: str) -> None:
        """Show a note about work done before the run starts."""
        self._print(named(text))

    @_ignore_errors
    def begin(self, folder: Path, notes: list[str], configuration: Mapping[str, Any]) -> None:
        """Show that the trainer has been started.

        Args:
            folder: the run's folder.
            notes: notes for the user about an earlier run in this folder.
            configuration: the run's whole configuration.
        """
        self.progress.begin(folder, notes, configuration)
        if self._panel is not None:
            self._panel.start()
            return
        self._print(f"run: {folder}", *(f"     {note}" for note in notes), f"log: {folder / 'train.log'}")
        self._print("Ctrl-C ends the run after the current step and saves it, or ends it now if no step has begun")

    @_ignore_errors
    def line(self, line: str) -> None:
        """Process a new line of the log."""
        news = self.progress.line(line)
        if self._panel is None:
            self._print(*([named(bare(line))] if self._shows_log else news))

    @_ignore_errors
    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Show the metrics of a step, or of the validation before the first step."""
        self.progress.step(step, metrics)
        if self._panel is not None:
            self._panel.step(step)
        else:
            self._print_step(step, metrics)

    @_ignore_errors
    def tick(self, asked: str | None = None) -> None:
        """Redraw the display; called twice per second. `asked` is the signal that requested an end after the step."""
        if asked is not None and not self._asked:
            self._asked = True
            self._request(f"{asked}: the run ends after step {self.progress.step_number}; a second signal ends it now")
        elif self._panel is not None:
            self._panel.tick()

    @_ignore_errors
    def aborting(self, by: str) -> None:
        """Show that a signal is ending the run immediately."""
        self._request(f"{by}: ending now")

    @_ignore_errors
    def end(self, stopped: StoppedRun | None) -> None:
        """Show that the trainer has ended without an error."""
        self.close("trained" if stopped is None else "stopped")
        if stopped is None:
            folder = str(self.progress.folder)
            short = os.path.relpath(folder) if self.progress.folder.is_relative_to(Path.cwd()) else folder
            self._print(f"done: {folder}", *(f"  {command(each, short)}" for each in ("view", "report")))
        elif stopped.checkpoint is None:
            self._print(f"stopped before step {stopped.step + 1}: there is nothing to save")
        else:
            self._print(f"stopped after step {stopped.step}, saved in {stopped.checkpoint}")
            self._print(f"resume with: {stopped.command}")

    @_ignore_errors
    def aborted(self, by: str) -> None:
        """Show that a signal has ended the run immediately."""
        self.close("aborted")
        self._print(self._abortion(by))

    @_ignore_errors
    def close(self, status: str = "failed") -> None:
        """Close the display; the last frame of a panel remains visible, with the run's status."""
        if self._panel is not None:
            panel, self._panel = self._panel, None
            panel.stop(status)

    def fail(self, error: Exception) -> None:
        """Replace a failed panel with lines, or show nothing more if the terminal or the output's reader is gone."""
        panel, self._panel = self._panel, None
        if getattr(error, "errno", None) in GONE:  # later output is discarded
            os.dup2(os.open(os.devnull, os.O_WRONLY), (self.stream or sys.stdout).fileno())
            return
        if panel is not None:
            with contextlib.suppress(Exception):  # a panel that has failed may also fail to stop
                panel.stop("running")
        with contextlib.suppress(OSError):
            what = "display" if panel is None else "panel"
            print(f"the {what} failed, but the run continues: {error!r}", file=sys.stderr)

    def _request(self, text: str) -> None:
        if self._panel is not None:
            self._panel.request(text)
        else:
            self._print(text)

    def _abortion(self, by: str) -> str:
        if not self.progress.is_training:
            return f"{by}: the run ended before the first step; nothing is lost"
        checkpoints = self.progress.folder / "checkpoints"
        return f"{by}: the run was aborted; training since the last checkpoint is lost ({checkpoints})"

    def _print_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._print(step_line(step, metrics, self.progress.total))

    def _print(self, *lines: str) -> None:
        for line in lines:
            print(line, file=self.stream or sys.stdout, flush=True)


class JsonDisplay(Display):
    """Writes one line of JSON for each step, and one at the end; other lines are written to standard error.

    Args:
        stream: the output for the JSON.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__("lines", stream)
        self._started = time.monotonic()
        self._has_ended = False

    @override
    @_ignore_errors
    def end(self, stopped: StoppedRun | None) -> None:
        if stopped is None:
            self.write_end("trained", 0)
        else:
            where = {"checkpoint": stopped.checkpoint, "command": stopped.command}
            self.write_end("stopped", STOPPED, step=stopped.step, **where)

    @override
    @_ignore_errors
    def aborted(self, by: str) -> None:
        self.write_end("aborted", 128 + signal.Signals[by], error=self._abortion(by))

    def write_end(self, status: str, exit_code: int, **more: Any) -> None:
        """Write the last line, unless it has already been written."""
        if self._has_ended:
            return
        self._has_ended = True
        folder = self.progress.folder
        record = {
            "step": max(self.progress.steps, default=None),
            "seconds": round(time.monotonic() - self._started, 1),
            "folder": str(folder) if folder.name else None,
            "log": str(folder / "train.log") if folder.name else None,
        }
        self._write({"event": "end", "status": status, "exit_code": exit_code, **record, **more})

    @override
    def _print_step(self, step: int, metrics: Mapping[str, Any]) -> None:
        infinite = {
            key: None for key, value in metrics.items() if isinstance(value, float) and not math.isfinite(value)
        }
        self._write({"event": "step", "step": step, "of": self.progress.total, "metrics": {**metrics, **infinite}})

    @override
    def _print(self, *lines: str) -> None:
        for line in lines:
            print(line, file=sys.stderr)

    def _write(self, record: Mapping[str, Any]) -> None:
        print(json.dumps(record), file=self.stream, flush=True)
