"""Says what the doctor is doing, once that takes longer than a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

__all__ = ["PATIENCE_S", "Progress"]

PATIENCE_S = 1.0
"""Seconds without a word."""


class Progress:
    """A context in which `say` writes, after the first second, what is being done.

    Args:
        write: takes a line.
        patience_s: seconds without a word.
    """

    def __init__(self, write: Callable[[str], None], patience_s: float = PATIENCE_S) -> None:
        self._write, self._text, self._begun = write, "", False
        self._lock = threading.Lock()
        self._timer = threading.Timer(patience_s, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Progress:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def say(self, text: str) -> None:
        """What is done from now on."""
        with self._lock:
            if self._begun and text != self._text:
                self._write(text)
            self._text = text

    def _begin(self) -> None:
        with self._lock:
            self._begun = True
            if self._text:
                self._write(self._text)
