"""`TraceIndex`: a database on disk that finds trajectories by properties and text; the trajectories stay in the files.

The index is incremental, so `refresh` reads only appended lines, rereads a file that was replaced or became shorter,
and drops a file that was deleted. The index never writes to the files and takes no locks in their folders. Each set of
files has a database in the user's cache folder, which can be deleted at any time. If that folder cannot be used, a
temporary folder is used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from filelock import FileLock

from agent_rl.trajectory import trace
from agent_rl.trajectory.estimates import Change, estimate_change
from agent_rl.trajectory.viewer.query import FACETS, Query
from agent_rl.trajectory.viewer.records import Source, in_our_form
from agent_rl.trajectory.viewer.tables import SCHEMA, RowBatch, lines
from agent_rl.work.parts import whole_lines

VERSION = 3
PAGE = 50
MOST_COMPARED = 200
MEASURES = {
    "correctness": "correctness",
    "reward": "reward",
    "tool calls": "calls",
    "turns": "turns",
    "tokens": "tokens",
}
"""The measures that a comparison shows, and the column for each."""
_BATCH = 2_000

logger = logging.getLogger(__name__)


class TraceIndex:
    """An index of trajectory files, safe for one writing thread and several reading threads.

    Args:
        sources: the files.
        folder: the folder of the database; None means `agent_rl/viewer` in the user's cache folder.

    Raises:
        OSError: not even a temporary database can be created.
    """

    def __init__(self, sources: Sequence[Source], folder: Path | None = None) -> None:
        self.sources = list(sources)
        self._lock = threading.Lock()
        self._tokens: dict[str, trace.TokenReader] = {}
        self._own: tempfile.TemporaryDirectory[str] | None = None
        folder = folder or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agent_rl" / "viewer"
        try:
            self._open_in(folder)
        except (OSError, sqlite3.Error) as error:  # for example, no home directory or no file locks
            self._own = tempfile.TemporaryDirectory(prefix="agent_rl-viewer-")
            logger.warning("the index cannot be kept in %s (%s), so it is rebuilt at each start", folder, error)
            self._open_in(Path(self._own.name))

    def close(self) -> None:
        """Close the database."""
        self._writer.close()
        if self._own is not None:
            self._own.cleanup()

    def refresh(self, progress: Callable[[int], None] = lambda count: None) -> int:
        """Read the lines written since the last call; return the number of new trajectories.

        Args:
            progress: function that is called repeatedly with the number of bytes read.
        """
        parts = ((source, part) for source in self.sources for part in trace.parts(source.path))
        files = [replace(source, path=part) for source, part in parts if os.path.exists(part)]
        with self._alone:  # locked, because another viewer of the same files uses the same database
            indexed = dict(self._writer.execute("SELECT path, id FROM files").fetchall())
            for path in indexed.keys() - {str(file.path) for file in files}:
                self._forget(indexed[path])
            return sum(self._refresh(file, progress) for file in files)

    def count(self, query: Query | None = None) -> int:
        """Return the number of trajectories that match a query."""
        where, values = (query or Query()).condition()
        return int(self._rows(f"SELECT count(*) AS number FROM trajectories t {where}", values)[0]["number"])

    def find(self, query: Query) -> list[dict[str, Any]]:
        """Return the columns of the trajectories on a page of a query's results."""
        where, values = query.condition()
        order = "DESC" if query.descending else "ASC"
        # shuffle rows with equal values, because a step's last trajectories are its longest
        order_by = f"ORDER BY {query.sort} {order} NULLS LAST, id * 2654435761 % 4294967296"
        # sort only the ids, because sorting whole rows takes ten times as long
        page = f"SELECT id FROM trajectories t {where} {order_by} LIMIT {PAGE} OFFSET ?"
        sql = f"SELECT * FROM trajectories WHERE id IN ({page}) {order_by}"
        return self._rows(sql, [*values, PAGE * query.page])

    def neighbours(self, number: int, query: Query) -> tuple[int | None, int | None]:
        """Return the numbers of the trajectories before and after a trajectory on its page of results."""
        ids = [None, *(row["id"] for row in self.find(query)), None]
        at = ids.index(number) if number in ids else None
        return (None, None) if at is None else (ids[at - 1], ids[at + 1])

    def choices(self) -> dict[str, list[tuple[str, int]]]:
        """Return the values of each facet, and the tools and components, each with its number of trajectories."""
        tables = {facet: (facet, "trajectories") for facet in FACETS}
        tables |= {kind: ("name", f"{kind}s") for kind in ("tool", "component")}
        values = {}
        for kind, (column, table) in tables.items():
            counts = f"SELECT {column} AS value, count(*) AS number FROM {table} WHERE value IS NOT NULL"
            rows = self._rows(f"{counts} GROUP BY value ORDER BY value")
            values[kind] = [(str(row["value"]), row["number"]) for row in rows]
        return values

    def get(self, number: int) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return a trajectory's columns and the trajectory as JSON data, or None if the number is unknown."""
        if not 0 <= number < 2**62:
            return None
        rows = self._rows("SELECT * FROM trajectories WHERE id = ?", [number])
        return (rows[0], self.record(rows[0])) if rows else None

    def record(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return the trajectory that these columns describe, as JSON data."""
        (row,) = self._rows("SELECT path FROM files WHERE id = ?", [columns["file_id"]])
        with open(row["path"], "rb") as file:
            file.seek(columns["offset"])
            return in_our_form(json.loads(file.read(columns["length"])))

    def path_of(self, columns: Mapping[str, Any]) -> Path:
        """Return the path of the first part of a trajectory's file."""
        return next(source.path for source in self.sources if source.name == columns["file"])

    def tokens(self, columns: Mapping[str, Any], id: str) -> trace.Tokens | None:
        """Return the tokens of a trajectory, or None if they were not stored.

        Raises:
            ValueError: the line is not a token record; the error names the file.
        """
        with self._lock:
            reader = self._tokens.setdefault(columns["file"], trace.TokenReader(self.path_of(columns)))
            return reader.read(id)

    def group(self, columns: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the columns of the trajectories with the same prompt, step and file, best rewards first."""
        same = "prompt_key = ? AND step IS ? AND file = ?"
        sql = f"SELECT * FROM trajectories WHERE {same} ORDER BY reward DESC, name LIMIT 256"
        rows = self._rows(sql, [columns["prompt_key"], columns["step"], columns["file"]])
        group = columns["name"].rpartition("_")[0]  # differs if a resumed run samples the prompts of a step again
        return [row for row in rows if row["name"].rpartition("_")[0] == group]

    def correctness(self, step: int, facets: Mapping[str, str]) -> list[list[float]]:
        """Return the correctness of a step's samples that match the facets, in one list per prompt."""
        where, values = Query({**facets, "step": str(step)}).condition()
        scored = f"{where} AND correctness IS NOT NULL"
        sql = f"SELECT prompt_key, correctness FROM trajectories t {scored} ORDER BY prompt_key"
        groups = groupby(self._rows(sql, values), itemgetter("prompt_key"))
        return [[row["correctness"] for row in group] for _, group in groups]

    def ends(self, file: str) -> tuple[int | None, int | None]:
        """Return a file's first and last validation step or, if there are fewer than two, its first and last step."""
        sql = "SELECT DISTINCT step FROM trajectories WHERE file = ? AND step IS NOT NULL {} ORDER BY step"
        held_out, all_steps = (
            [row["step"] for row in self._rows(sql.format(where), [file])] for where in ("AND split = 'test'", "")
        )
        steps = held_out if len(held_out) > 1 else all_steps or [None]
        return steps[0], steps[-1]

    def compare(
        self, one: tuple[str, int | None], other: tuple[str, int | None]
    ) -> tuple[list[dict[str, Any]], dict[str, tuple[float, float, Change]]]:
        """Compare two sides on the prompts that both sides contain.

        Args:
            one: the name of a file, and a step, or None for all of its steps.
            other: the name of the other side's file, and a step or None.

        Returns:
            The columns of the 200 prompts whose mean rewards differ most, and for each of `MEASURES` the mean of one
            side, the mean of the other, and the `Change`, all computed from the means of each prompt.
        """
        means = ", ".join(f"avg({name}) AS {name}" for name in MEASURES.values())
        side = (
            f"SELECT prompt_key, {means}, count(*) AS samples, min(id) AS id, min(question) AS question, "
            "min(truth) AS truth FROM trajectories WHERE file = ?{} AND reward IS NOT NULL GROUP BY prompt_key"
        )
        sides = [side.format("" if step is None else " AND step = ?") for _, step in (one, other)]
        values = [value for pair in (one, other) for value in pair if value is not None]
        names = (*MEASURES.values(), "samples", "id")
        columns = ", ".join(f"a.{name} AS {name}_before, b.{name} AS {name}_after" for name in names)
        rows = self._rows(
            f"SELECT a.question, a.truth, {columns} FROM ({sides[0]}) a JOIN ({sides[1]}) b USING (prompt_key) "
            "ORDER BY abs(b.reward - a.reward) DESC, prompt_key",
            values,
        )
        changes = {}
        for measure, name in MEASURES.items():
            both = [(row[f"{name}_before"], row[f"{name}_after"]) for row in rows]
            if pairs := [pair for pair in both if None not in pair]:
                before, after = (fmean(side) for side in zip(*pairs, strict=True))
                changes[measure] = before, after, estimate_change(pairs)
        return rows[:MOST_COMPARED], changes

    def skipped(self) -> int:
        """Return the number of lines that are not trajectories."""
        return int(self._rows("SELECT coalesce(sum(skipped), 0) AS number FROM files")[0]["number"])

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, check_same_thread=False, timeout=30)
        database.row_factory = sqlite3.Row
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=OFF")  # a crash may lose the index, but it can be rebuilt
        return database

    def _open_in(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        key = hashlib.sha256("\0".join(sorted(str(source.path) for source in self.sources)).encode()).hexdigest()[:16]
        self.path = folder / f"{key}-v{VERSION}.db"
        self._alone = FileLock(self.path.with_suffix(".lock"))
        with self._alone:
            try:
                self._writer = self._opened()
            except sqlite3.DatabaseError:  # the database is corrupt, for example after a power failure
                for file in folder.glob(f"{self.path.name}*"):
                    file.unlink()
                self._writer = self._opened()

    def _opened(self) -> sqlite3.Connection:
        database = self._connect()
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'files'").fetchone():
            database.executescript(SCHEMA)
        return database

    def _rows(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Run a query on its own connection, and return the rows."""
        with closing(self._connect()) as database:
            return [dict(row) for row in database.execute(sql, values)]

    def _refresh(self, source: Source, progress: Callable[[int], None]) -> int:
        try:
            status = os.stat(source.path)
        except OSError:
            return 0  # the file does not exist yet
        path, database = str(source.path), self._writer
        known = database.execute("SELECT * FROM files WHERE path = ?", [path]).fetchone()
        if known is not None and (
            known["inode"] != status.st_ino
            # a new file may have the inode of a deleted one, and a file with a single record is rewritten as a whole
            or (known["offset"] != status.st_size and (path.endswith(".json") or not _ends_line(path, known["offset"])))
        ):
            self._forget(known["id"])
        new = (path, source.name, status.st_ino)
        database.execute("INSERT OR IGNORE INTO files (path, name, inode, offset, skipped) VALUES (?, ?, ?, 0, 0)", new)
        database.commit()  # otherwise this process would keep the write lock, even if there is nothing to read
        known = database.execute("SELECT * FROM files WHERE path = ?", [path]).fetchone()
        return self._read(source, known["id"], known["offset"], progress) if known["offset"] < status.st_size else 0

    def _forget(self, file: int) -> None:
        ids = "(SELECT id FROM trajectories WHERE file_id = ?)"
        for table in ("tools", "components"):
            self._writer.execute(f"DELETE FROM {table} WHERE id IN {ids}", [file])
        self._writer.execute("DELETE FROM trajectories WHERE file_id = ?", [file])
        self._writer.execute("DELETE FROM files WHERE id = ?", [file])
        self._writer.commit()
        self._tokens.clear()  # the file of the tokens was replaced together with the trace

    def _read(self, source: Source, file: int, offset: int, progress: Callable[[int], None]) -> int:
        # never reuse the number of a deleted trajectory, because its text stays in the table of texts
        highest = self._writer.execute("SELECT seq FROM sqlite_sequence WHERE name = 'trajectories'").fetchone()
        number = first = highest[0] if highest else 0
        batch, stored = RowBatch(file, offset), Future[None]()
        stored.set_result(None)
        with ThreadPoolExecutor(1, "agent_rl-index") as thread:  # a thread helps, because SQLite releases the GIL
            for line in lines(source, offset):
                progress(len(line))
                number += batch.read(number + 1, source.name, line)
                if len(batch) >= _BATCH:
                    stored.result()
                    stored = thread.submit(batch.store, self._writer)
                    batch = RowBatch(file, batch.offset)
            stored.result()
            batch.store(self._writer)
        return number - first


def _ends_line(path: str, offset: int) -> bool:
    """Whether a line of the file ends at this offset; if not, the file was replaced since it was read so far."""
    return next(whole_lines(path, max(0, offset - 1)), None) == (offset - 1, b"\n")
