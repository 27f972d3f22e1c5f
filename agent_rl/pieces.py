"""`Pieces`: the finished pieces of a long command, in a file until all are done, so that the same command goes on.

The file is for the same work alone: its name is a digest of the command's settings and of the files that these name.
Not promised: two processes that do the same work at one time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_rl.progress import progress
from agent_rl.store import Store, by_content

__all__ = ["Pieces", "pieces"]

FOLDER = Path("outputs/unfinished")


class Pieces(dict[int, Any]):
    """Results by number, each JSON data.

    Args:
        store: keeps them; None: they are in memory alone.
    """

    def __init__(self, store: Store | None = None) -> None:
        super().__init__([] if store is None else store.items())
        self.store = store
        self.on_add: Callable[[], None] = lambda: None
        """Is called for each result that is added."""

    def add(self, number: int, result: Any) -> None:
        """Keep the result of a piece."""
        self[number] = result
        if self.store is not None:
            self.store.put(number, result)
        self.on_add()


@contextmanager
def pieces(what: str, total: int | None, work: Any) -> Iterator[Pieces]:
    """The pieces of some work, with its progress; their file is removed when all is done.

    Args:
        what: the pieces are, for example `groups`.
        total: how many there are; None where nobody knows.
        work: what makes it this work and no other: JSON data and paths; files count by their content.

    Raises:
        KeyboardInterrupt: saying how many pieces are kept.
    """
    digest = hashlib.sha256(json.dumps([what, total, by_content(work)], default=str).encode()).hexdigest()
    try:
        found = Pieces(Store(FOLDER / f"{what}-{digest[:16]}.jsonl"))
    except (OSError, ValueError):  # nothing can be written there
        found = Pieces()
    with progress(what, total, len(found)) as advance:
        found.on_add = advance
        try:
            yield found
        except KeyboardInterrupt:
            if found.store is None or found.store.failed:
                raise
            of = "" if total is None else f" of {total:,}"
            raise KeyboardInterrupt(f"{len(found):,}{of} {what} are kept in {found.store.path}") from None
    if found.store is not None:
        found.store.path.unlink(missing_ok=True)
