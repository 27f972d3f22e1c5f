"""`Store` keeps results by key in an append-only file. `Cache` executes equal calls only once, even if concurrent.
`pieces` stores a long command's finished parts until all parts are done, so that an interrupted command can resume.

Each line of a store's file is `[key, result]` as JSON. Processes on one machine may append to a file at the same time,
and each process reads the other processes' lines. A killed process's incomplete line is ignored; if several lines have
the same key, the last line is used. Results never expire, so delete the file when the code or service that produced
them changes.
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
from typing import Any

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.work.concurrency import PerLoop
from agent_rl.work.parts import append_lines, whole_lines
from agent_rl.work.progress import progress

Key = str | int

UNFINISHED = Path("outputs/unfinished")
"""Folder for the pieces of interrupted commands."""
MAX_BYTES = 64 * 2**20
"""Maximum size of a cache in memory."""
ENTRY_BYTES = 200
"""Number of bytes that an entry occupies in memory in addition to its text."""
_SQLITE = b"SQLite format 3"
"""The first bytes of a SQLite file; older versions kept results in SQLite."""

logger = logging.getLogger(__name__)


def reply_key(*parts: Any) -> str:
    """Return a key that is the same for equal JSON data; the data must not contain secrets."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def by_content(value: Any, folder: Path = Path(), written: Collection[str] = ()) -> Any:
    """Return plain data in which each file's name is replaced with a digest of the file's content.

    Args:
        value: plain data; a string in it may be `FILE`, `FILE:OBJECT`, `MODULE.OBJECT`, or one of these after `KEY=`.
        folder: a folder in which relative names are looked up, in addition to the working directory.
        written: keys whose values name output files; these names are kept.
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
        for path, member in (text, ""), (file, attribute), (f"{module.replace('.', '/')}.py", name):
            for place in (folder / os.path.expanduser(path), Path(os.path.expanduser(path))):
                if os.path.isfile(place):
                    return f"{before}sha256:{file_digest(place)}:{member}".rstrip(":")
    return value


class Store:
    """Stores results by key in a file. Once it is open, a failed read or write is only logged; the result is missing.

    Args:
        path: the file's path; missing folders are created. If a SQLite file of an older version has this path, the
            store uses `<path>.jsonl`.

    Raises:
        OSError: the file cannot be opened.
        ValueError: the file has another format.
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
        append_lines(self.path, b"")  # creates the file
        self._read_new_lines()

    def get(self, key: Key) -> Any:
        """Return the result that is stored for a key, or None."""
        with self._guarded():
            if key not in self._places:
                self._read_new_lines()
            if key in self._places:
                start, size = self._places[key]
                with open(self.path, "rb") as file:
                    file.seek(start)
                    line = file.read(size)
                if line.startswith(json.dumps([key]).encode()[:-1] + b","):  # otherwise the file is a new one
                    return json.loads(line)[1]
        return None

    def put(self, key: Key, result: Any) -> None:
        """Append a result, which is JSON data; it replaces an earlier result with the same key."""
        with self._guarded():
            append_lines(self.path, json.dumps([key, result]).encode() + b"\n")
            self._read_new_lines()

    def items(self) -> Iterator[tuple[Key, Any]]:
        """Yield all results with their keys."""
        return ((key, self.get(key)) for key in list(self._places))

    def _head(self) -> bytes:
        if not self.path.is_file():
            return b""
        with open(self.path, "rb") as file:
            return file.read(len(_SQLITE))

    def _read_new_lines(self) -> None:
        """Index the whole lines that were appended since the last call."""
        if self.path.stat().st_size < self._end:  # the file was deleted and written again
            self._places, self._end = {}, 0
        for start, line in whole_lines(self.path, self._end):
            with suppress(ValueError, TypeError):  # the process that wrote this line was killed
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


class Cache:
    """A cache of strings by key: all strings in a file, or the most recently used ones in memory.

    Args:
        path: the path of a `Store` on a local disk; None means that results stay in memory.
        key: the configuration key that contains the path, for error messages.
        kind: the kind of the strings, for error messages, for example `verdicts`.

    Raises:
        ConfigError: the file cannot be used.
    """

    def __init__(self, path: str | None = None, key: str = "", kind: str = "results") -> None:
        self._bytes = 0
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()
        self._flights: PerLoop[dict[str, asyncio.Future[None]]] = PerLoop(dict)
        try:
            self._store = None if path is None else Store(path)
        except (OSError, ValueError) as error:
            problem = f"{path} cannot be used as a cache of {kind}: {error}"
            remedy = "Choose another file on a local disk, or delete the file if it is a broken cache"
            raise ConfigError(key, problem, remedy) from error

    async def get(
        self,
        key: str,
        make: Callable[[], Awaitable[str | None]],
        patience_s: float | None = None,
        on_wait: Callable[[float], None] = lambda seconds: None,
    ) -> tuple[str, bool]:
        """Return a key's stored text, or call `make` if no text is stored; also return whether the text was stored.

        Args:
            key: the call's key; equal calls have the same key.
            make: function that makes the text; a returned None is not stored, and `get` returns "" instead.
            patience_s: maximum number of seconds to wait for equal calls in progress; after that, this call runs too.
            on_wait: function that is called with the seconds of each wait for an equal call, also before a failure.

        Raises:
            UnscoredError: `make` failed in this call, or in an equal call for which this call waited. If the equal call
                fails in another way, this call runs.
        """
        flights, loop, waited = self._flights.get(), asyncio.get_running_loop(), 0.0
        while (stored := self._recall(key)) is None and (flight := flights.get(key)) is not None:
            started = loop.time()
            remaining = None if patience_s is None else patience_s - waited
            await asyncio.wait((flight,), timeout=remaining)
            waited += (seconds := loop.time() - started)
            on_wait(seconds)
            if not flight.done():
                return await make() or "", False
            if not flight.cancelled() and (failure := flight.exception()) is not None:
                raise UnscoredError(str(failure))
        if stored is not None:
            return stored, True
        flight = flights[key] = loop.create_future()
        try:
            text = await make()
            if text is not None:
                self._keep(key, text)
            return text or "", False
        except UnscoredError as error:
            flight.set_exception(error)
            flight.exception()  # marks the exception as seen, in case no call waits for it
            raise
        finally:
            del flights[key]
            flight.cancel()  # after a success, makes the waiting calls look for the text

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
            if key in self._texts:  # another event loop added the text
                return
            self._texts[key] = text
            self._bytes += len(text) + ENTRY_BYTES
            while self._bytes > MAX_BYTES:
                _, dropped = self._texts.popitem(last=False)
                self._bytes -= len(dropped) + ENTRY_BYTES


class Pieces(dict[Key, Any]):
    """The results of finished pieces, by piece number; each result is JSON data.

    Args:
        store: the file that keeps the results; None means that results stay in memory.
    """

    def __init__(self, store: Store | None = None) -> None:
        super().__init__([] if store is None else store.items())
        self.store = store
        self.on_add: Callable[[], None] = lambda: None
        """A function that is called whenever a result is added."""

    def add(self, number: int, result: Any) -> None:
        """Store the result of a piece."""
        self[number] = result
        if self.store is not None:
            self.store.put(number, result)
        self.on_add()


@contextmanager
def pieces(what: str, total: int | None, work: Any) -> Iterator[Pieces]:
    """Open the stored pieces of some work, and show the work's progress; the file is removed when all work is done.

    Args:
        what: the kind of pieces, for example `groups`.
        total: number of pieces, or None if unknown.
        work: JSON data and paths that identify the work; files are identified by their content.

    Raises:
        KeyboardInterrupt: the user interrupted the work; the message contains the number of stored pieces.
    """
    digest = hashlib.sha256(json.dumps([what, total, by_content(work)], default=str).encode()).hexdigest()
    try:
        stored = Pieces(Store(UNFINISHED / f"{what}-{digest[:16]}.jsonl"))
    except (OSError, ValueError):  # the folder is not writable
        stored = Pieces()
    with progress(what, total, len(stored)) as advance:
        stored.on_add = advance
        try:
            yield stored
        except KeyboardInterrupt:
            if stored.store is None or stored.store.failed:
                raise
            share = "" if total is None else f" of {total:,}"
            raise KeyboardInterrupt(f"{len(stored):,}{share} {what} are kept in {stored.store.path}") from None
    if stored.store is not None:
        stored.store.path.unlink(missing_ok=True)
