"""`Duplicates`: rows that are asked twice, word for word or nearly, in any number of files and in bounded memory.

What was added lies in a database in a temporary folder, not in memory. Rows are nearly alike when 80 % of their runs
of three words are the same (Jaccard similarity) and their ground truths are equal: rows that share a schema, or that
were made from one template, differ in the truth. Candidates are found by MinHash signatures in bands: of pairs with a
similarity of 0.8 at least 98 % are found, of 0.9 all but one in 5,000. Of many rows that are alike each is compared
with the first.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

__all__ = ["Duplicates", "Repeated"]

SIMILAR = 0.8
_BANDS, _IN_BAND = 8, 4
_RUN = 3
"""Words of a run."""
_MOST_CHARACTERS = 20_000
"""Of a text that is compared."""
_BATCH = 10_000
_MEMORY = "1GB"

_FIRST = """
    INSERT INTO pairs SELECT each.id, groups.first FROM {table} each
    JOIN (SELECT {key}, min(id) AS first FROM {table} WHERE {only} GROUP BY {key} HAVING count(*) > 1) groups
    USING ({key}) WHERE {only} AND each.id > groups.first"""
_FOUND = """
    SELECT r.file, r.row, f.file, f.row, r.truth = f.truth, r.same = f.same, r.text, f.text
    FROM (SELECT DISTINCT id, first FROM pairs) pairs JOIN rows r ON r.id = pairs.id JOIN rows f ON f.id = pairs.first
    ORDER BY r.id, r.same = f.same DESC, f.id"""
_WORD = re.compile(r"\w+")
_random = np.random.default_rng(0)
_FACTORS = _random.integers(0, 2**63, _BANDS * _IN_BAND, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_OFFSETS = _random.integers(0, 2**63, _BANDS * _IN_BAND, dtype=np.uint64)


@dataclass(frozen=True)
class Repeated:
    """A row that asks what an earlier one asks.

    Attributes:
        file: number of its file.
        row: its number in the file.
        first: file and row of the earlier one.
        similarity: share of their runs of words that are the same.
        is_exact: whether the two ask the same, word for word; white space does not count.
        same_truth: whether both have the same ground truth.
    """

    file: int
    row: int
    first: tuple[int, int]
    similarity: float
    is_exact: bool
    same_truth: bool


class Duplicates:
    """Collects rows, and then says which of them repeat an earlier one; a context that removes its files."""

    def __init__(self) -> None:
        import duckdb

        self._folder = tempfile.TemporaryDirectory(prefix="agent_rl-duplicates-")
        self._database = duckdb.connect(f"{self._folder.name}/rows.db")
        self._database.execute(f"SET memory_limit='{_MEMORY}'; SET threads=2; SET preserve_insertion_order=false")
        self._database.execute(
            "CREATE TABLE rows (id BIGINT, file INT, row BIGINT, same BLOB, truth BLOB, text VARCHAR)"
        )
        self._database.execute("CREATE TABLE bands (band UTINYINT, part UBIGINT, id BIGINT)")
        self._rows: list[tuple[int, int, int, bytes, bytes, str]] = []
        self._signatures: list[Any] = []
        self._count = 0

    def __enter__(self) -> Duplicates:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._folder.cleanup()

    def add(self, file: int, row: int, asked: str, truth: str, more: str = "") -> None:
        """Add a row.

        Args:
            file: number of its file.
            row: its number in the file.
            asked: the text of its prompt.
            truth: its ground truth.
            more: what else it asks with, for example its tools' arguments: rows with different ones are different.
        """
        words = " ".join(asked.encode(errors="replace").decode().split())
        text = f"{words.lower()[:_MOST_CHARACTERS]} {more}"
        self._rows.append((self._count, file, row, _digest(f"{words}\0{more}"), _digest(truth), text))
        self._signatures.append(_signature(text, _digest(truth)))
        self._count += 1
        if len(self._rows) >= _BATCH:
            self._store()

    def found(self) -> Iterator[Repeated]:
        """The rows that repeat an earlier one, each once, in the order of files and rows."""
        self._store()
        self._database.execute("CREATE OR REPLACE TABLE pairs (id BIGINT, first BIGINT)")
        self._database.execute(_FIRST.format(table="rows", key="same", only="true"))
        for band in range(_BANDS):
            self._database.execute(_FIRST.format(table="bands", key="part", only=f"band = {band}"))
        cursor = self._database.execute(_FOUND)
        last = None
        while fetched := cursor.fetchmany(1000):
            for file, row, first_file, first_row, same_truth, is_exact, one, other in fetched:
                similarity = 1.0 if is_exact else _jaccard(one, other)
                if similarity >= SIMILAR and (file, row) != last:
                    last = (file, row)
                    yield Repeated(file, row, (first_file, first_row), similarity, is_exact, same_truth)

    def _store(self) -> None:
        import pyarrow as pa

        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        rows = pa.table(dict(zip(("id", "file", "row", "same", "truth", "text"), map(list, columns), strict=True)))
        parts = np.stack(self._signatures)  # rows, bands
        ids = np.arange(self._count - len(parts), self._count)
        bands = pa.table(
            {
                "band": np.tile(np.arange(_BANDS, dtype=np.uint8), len(parts)),
                "part": parts.ravel(),
                "id": np.repeat(ids, _BANDS),
            }
        )
        for name, table in (("rows", rows), ("bands", bands)):
            self._database.register("batch", table)
            self._database.execute(f"INSERT INTO {name} SELECT * FROM batch")
            self._database.unregister("batch")
        self._rows, self._signatures = [], []


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=12).digest()


def _runs(text: str) -> set[str]:
    words = _WORD.findall(text)
    return {" ".join(words[at : at + _RUN]) for at in range(max(1, len(words) - _RUN + 1))}


def _signature(text: str, truth: bytes) -> Any:
    """One number for each band, of shape (bands,): equal for rows with the same truth that agree in the band."""
    runs = np.fromiter((zlib.crc32(run.encode(errors="replace")) for run in _runs(text)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        lowest = ((runs[:, None] * _FACTORS + _OFFSETS) >> np.uint64(32)).min(axis=0)  # runs, permutations
    rows = np.ascontiguousarray(lowest.reshape(_BANDS, _IN_BAND))
    digests = (hashlib.blake2b(row.tobytes() + truth, digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _jaccard(one: str, other: str) -> float:
    ours, theirs = _runs(one), _runs(other)
    return len(ours & theirs) / len(ours | theirs)
