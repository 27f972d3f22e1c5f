"""Says what the doctor is doing, once that takes longer than a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["PATIENCE_S", "progress"]

PATIENCE_S = 1.0
"""Seconds without a word."""


@contextmanager
def progress(write: Callable[[str], None], patience_s: float = PATIENCE_S) -> Iterator[Callable[[str], None]]:
    """Give a function that takes what is being done, and writes it after the first `patience_s` seconds."""
    latest: list[str] = []
    is_late = threading.Event()

    def begin() -> None:
        is_late.set()
        for text in latest[-1:]:
            write(text)

    def say(text: str) -> None:
        is_new = latest[-1:] != [text]
        latest.append(text)
        if is_late.is_set() and is_new:
            write(text)

    timer = threading.Timer(patience_s, begin)
    timer.daemon = True
    timer.start()
    try:
        yield say
    finally:
        timer.cancel()
