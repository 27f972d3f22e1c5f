"""`progress` shows the progress of a long command on stderr: a bar on a terminal, otherwise an occasional line.

A command prints only its result on stdout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

PATIENCE_S = 5.0
"""Seconds before the first progress line if stderr is not a terminal."""
PAUSE_S = 30.0
"""Seconds between progress lines."""


@contextmanager
def progress(what: str, total: int | None = None, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show the progress of the work inside the `with` block.

    Args:
        what: the items to count, for example `trajectories`.
        total: number of items, or None if unknown.
        done: number of items that are already done.

    Returns:
        A function `advance(count=1, note="")`; the note, for example the mean so far, is shown instead of `what`.
    """
    from rich import progress as bars
    from rich.console import Console

    console = Console(stderr=True, force_terminal=sys.stderr.isatty())
    columns = [bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn()]
    columns += [bars.TimeElapsedColumn(), *([] if total is None else [bars.TimeRemainingColumn()])]
    began = time.monotonic()
    last = began - PAUSE_S + PATIENCE_S
    with bars.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total, completed=done)

        def advance(count: int = 1, note: str = "") -> None:
            nonlocal done, last
            done += count
            if console.is_terminal:
                bar.update(task, completed=done, description=note or what)
            elif (now := time.monotonic()) - last >= PAUSE_S:
                last = now
                place = f"{done:,}" if total is None else f"{done:,} of {total:,}"
                texts = [place, str(timedelta(seconds=int(now - began))), *([note] if note else [])]
                print(f"{what}: {', '.join(texts)}", file=sys.stderr, flush=True)

        yield advance
