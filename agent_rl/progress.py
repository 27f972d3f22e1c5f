"""`progress`: how far a long command is, on stderr: a bar on a terminal, else a line now and then.

What a command prints on stdout is its result alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]

PATIENCE_S = 5.0
"""Seconds before the first line, without a terminal."""
PAUSE_S = 30.0
"""Seconds between two lines."""


@contextmanager
def progress(what: str, total: int | None = None, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show the progress of what is done inside.

    Args:
        what: is counted, for example `trajectories`.
        total: how many there are; None where nobody knows.
        done: how many were done before.

    Returns:
        To be called as `advance(count=1, note="")`; the note, for example a mean so far, stands in place of `what`.
    """
    shown = _bar if sys.stderr.isatty() else _lines
    with shown(what, total, done) as advance:
        yield advance


@contextmanager
def _bar(what: str, total: int | None, done: int) -> Iterator[Callable[..., None]]:
    from rich import progress as bars
    from rich.console import Console

    columns = [bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn()]
    columns += [bars.TimeElapsedColumn(), *([] if total is None else [bars.TimeRemainingColumn()])]
    with bars.Progress(*columns, console=Console(stderr=True), refresh_per_second=4, transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done)

        def advance(count: int = 1, note: str = "") -> None:
            bar.update(task, advance=count, description=note or what)

        yield advance


@contextmanager
def _lines(what: str, total: int | None, done: int) -> Iterator[Callable[..., None]]:
    began = time.monotonic()
    said = began - PAUSE_S + PATIENCE_S

    def advance(count: int = 1, note: str = "") -> None:
        nonlocal done, said
        done += count
        now = time.monotonic()
        if now - said >= PAUSE_S:
            said = now
            of = "" if total is None else f" of {total:,}"
            minutes, seconds = divmod(int(now - began), 60)
            noted = f", {note}" if note else ""
            print(f"{what}: {done:,}{of}, {minutes}:{seconds:02}{noted}", file=sys.stderr, flush=True)

    yield advance
