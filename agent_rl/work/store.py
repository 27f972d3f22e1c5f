"""`Store`: results by key in an append-only file; `Cache`: equal calls are made once, also those at the same time;
`pieces`: what a long command has done, kept until all is done, so that the same command resumes after an interruption.

A line of the file is `[key, result]` as JSON. The processes of a machine may append to one file at the same time, and
each finds what the others have appended. The incomplete line of a killed process does not count; of several lines with
one key the last does. Nothing expires: delete the file when the code or service that computes the results has changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.work.concurrency import PerLoop
from agent_rl.work.parts import append_lines, whole_lines
from agent_rl.work.progress import progress

__all__ = ["Cache", "Found", "Pieces", "Store", "by_content", "file_digest", "pieces", "reply_key"]

Key = str | int

UNFINISHED = Path("outputs/unfinished")
"""Folder of the pieces of interrupted commands."""
MAX_BYTES = 64 * 2**20
"""Of a cache in memory."""
ENTRY_BYTES = 200
"""What an entry in memory takes besides its text."""
_SQLITE = b"SQLite format 3"
"""How the files of older versions begin."""

logger = logging.getLogger(__name__)


def reply_key(*parts: Any) -> str:
    """The same text for equal JSON data; secrets must not be part of it."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def by_content(value: Any, folder: Path = Path(), written: Collection[str] = ()) -> Any:
    """Plain data, with the digest of the content instead of a file's name.

    Args:
        value: in which a text may be `FILE`, `FILE:OBJECT`, `MODULE.OBJECT`, or one of these after `KEY=`.
        folder: to which names may be relative, as well as to the working directory.
        written: keys below which files are written, whose names stay.
    """
    if isinstance(value, Mapping):
        items = {str(key): item for key, item in value.items()}
        return {key: item if key in written else by_content(item, folder, written) for key, item in items.items()}
    if isinstance(value, list | tuple):
        return [by_content(item, folder, written) for item in value]
    if not isinstance(value, str | Path) or len(str(value)) > 1000:
        return value
    for before, text in (("", str(value)), str(value).rpartition("=")[::2]):
        text = text.removeprefix("file://")
        file, _, attribute = text.rpartition(":")
        module, _, name = text.rpartition(".")
        for path, named in (text, ""), (file, attribute), (f"{module.replace('.', '/')}.py", name):
            for place in (folder / os.path.expanduser(path), Path(os.path.expanduser(path))):
                if os.path.isfile(place):
                    return f"{before}sha256:{file_digest(place)}:{named}".rstrip(":")
    return value


class Store:
    """Results by key in a file. Once it is open, a failure is logged, and the result counts as missing.

    Args:
        path: of the file; its folders are created. Next to a SQLite file of an older version, `<path>.jsonl` is used.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is a file of another kind.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.failed = False
        self._lock = threading.Lock()
        self._places: dict[Key, tuple[int, int]] = {}
        self._end = 0
        if self._head() == _SQLITE:
            self.path = self.path.with_name(f"{self.path.name}.jsonl")
        if self._head()[:1] not in (b"", b"["):
            raise ValueError("it is not a file of results")
        append_lines(self.path, b"")  # makes it
        self._read_on()

    def get(self, key: Key) -> Any:
        """The result, or None."""
        with self._guarded():
            if key not in self._places:
                self._read_on()
            if key in self._places:
                start, size = self._places[key]
                with open(self.path, "rb") as file:
                    file.seek(start)
                    return json.loads(file.read(size))[1]
        return None

    def put(self, key: Key, result: Any) -> None:
        """Append a result, which is JSON data; it replaces an older one."""
        with self._guarded():
            append_lines(self.path, json.dumps([key, result]).encode() + b"\n")
            self._read_on()

    def items(self) -> Iterator[tuple[Key, Any]]:
        """All results with their keys."""
        return ((key, self.get(key)) for key in list(self._places))

    def _head(self) -> bytes:
        if not self.path.is_file():
            return b""
        with open(self.path, "rb") as file:
            return file.read(len(_SQLITE))

    def _read_on(self) -> None:
        """Find the whole lines that were appended since the last time."""
        if self.path.stat().st_size <= self._end:
            return
        for start, line in whole_lines(self.path, self._end):
            with suppress(ValueError, TypeError):  # the line of a killed process
                key, _ = json.loads(line)
                self._places[key] = start, len(line)
            self._end = start + len(line)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (OSError, ValueError) as error:
            level = logging.DEBUG if self.failed else logging.WARNING
            logger.log(level, "results in %s: %s (further failures are not shown)", self.path, error)
            self.failed = True


class Found(NamedTuple):
    """The text of a call."""

    text: str
    """Empty where `make` gave None."""
    cached: bool
    waited_s: float
    """Seconds of waiting for an equal call."""


class Cache:
    """Texts by key, in memory the most recently used, or in a file.

    Args:
        path: of a `Store` on a disk of this machine; None: memory only.
        key: the configuration key that holds the path, for errors.
        kind: of the texts, for errors, for example `verdicts`.
        max_bytes: in memory.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(
        self, path: str | None = None, key: str = "", kind: str = "results", max_bytes: int = MAX_BYTES
    ) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._flights: PerLoop[dict[str, asyncio.Future[None]]] = PerLoop(dict)
        try:
            self._store = None if path is None else Store(path)
        except (OSError, ValueError) as error:
            problem = f"{path} cannot be used as a cache of {kind}: {error}"
            remedy = "Name another, on a disk of this machine, or delete the file if it is a broken cache"
            raise ConfigError(key, problem, remedy) from error

    async def get(self, key: str, make: Callable[[], Awaitable[str | None]], patience_s: float | None = None) -> Found:
        """The text that is kept for a key; if there is none, `make` makes it.

        Args:
            key: the same for equal calls.
            make: the text; None: it is not kept.
            patience_s: seconds to wait for equal calls that run; a call that has waited so long runs as well.

        Raises:
            UnscoredError: `make` failed, here or in an equal call that this one waited for. After any other failure
                of that call, this one runs.
        """
        flights, loop, waited = self._flights.get(), asyncio.get_running_loop(), 0.0
        while (kept := self._recall(key)) is None and (flight := flights.get(key)) is not None:
            started = loop.time()
            left = None if patience_s is None else patience_s - waited
            await asyncio.wait((flight,), timeout=left)
            waited += loop.time() - started
            if not flight.done():
                return Found(await make() or "", False, waited)
            if not flight.cancelled() and (failure := flight.exception()) is not None:
                raise UnscoredError(str(failure))
        if kept is not None:
            return Found(kept, True, waited)
        flight = flights[key] = loop.create_future()
        try:
            text = await make()
            if text is not None:
                self._keep(key, text)
            return Found(text or "", False, waited)
        except UnscoredError as error:
            flight.set_exception(error)
            flight.exception()  # marks it as seen, in case no call waits for it
            raise
        finally:
            del flights[key]
            flight.cancel()  # after a success: the waiting calls look for the text again

    def _recall(self, key: str) -> str | None:
        if self._store is not None:
            text: str | None = self._store.get(key)
            return text
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
            return self._texts.get(key)

    def _keep(self, key: str, text: str) -> None:
        if self._store is not None:
            self._store.put(key, text)
            return
        with self._lock:
            if key in self._texts:  # of another event loop
                return
            self._texts[key] = text
            self._bytes += len(text) + ENTRY_BYTES
            while self._bytes > self._max_bytes:
                _, dropped = self._texts.popitem(last=False)
                self._bytes -= len(dropped) + ENTRY_BYTES


class Pieces(dict[Key, Any]):
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
        found = Pieces(Store(UNFINISHED / f"{what}-{digest[:16]}.jsonl"))
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
