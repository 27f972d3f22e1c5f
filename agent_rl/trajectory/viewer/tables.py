"""The tables of an index, and `RowBatch`, which turns the lines of a file into rows."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any

from agent_rl.trajectory.viewer.records import Source, in_our_form
from agent_rl.trajectory.viewer.rendering import visible
from agent_rl.work.parts import whole_lines

_SHOWN = 160
"""Maximum number of characters of a question or an answer in the table."""
_MOST_TEXT = 200_000
"""Maximum number of characters of a trajectory in the search index."""
SCHEMA = """
CREATE TABLE files (
    id INTEGER PRIMARY KEY, path TEXT UNIQUE, name TEXT, inode INTEGER, offset INTEGER, skipped INTEGER);
CREATE TABLE trajectories (
    id INTEGER PRIMARY KEY AUTOINCREMENT, file_id INTEGER, offset INTEGER, length INTEGER, name TEXT, file TEXT,
    step INTEGER, split TEXT, data_source TEXT, agent TEXT, stop_reason TEXT, reward REAL, correctness REAL,
    turns INTEGER,
    calls INTEGER, errors INTEGER, malformed INTEGER, tokens INTEGER, seconds REAL, error TEXT, prompt_key TEXT,
    question TEXT, answer TEXT, truth TEXT);
CREATE TABLE tools (name TEXT, id INTEGER, PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE TABLE components (name TEXT, id INTEGER, value REAL, PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail=none, columnsize=0);
CREATE INDEX by_prompt ON trajectories (prompt_key, step);
CREATE INDEX by_reward ON trajectories (reward, id);
CREATE INDEX by_file ON trajectories (file_id);
CREATE INDEX by_facets ON trajectories (file, step, split, data_source, agent, stop_reason);
INSERT INTO texts (texts, rank) VALUES ('hashsize', 16777216);
"""


class RowBatch:
    """Rows that are not yet in the database; `offset` is the position in the file after these rows."""

    def __init__(self, file: int, offset: int) -> None:
        self.file, self.offset, self._skipped = file, offset, 0
        self._rows: list[tuple[Any, ...]] = []
        self._tools: list[tuple[str, int]] = []
        self._components: list[tuple[str, int, float]] = []
        self._texts: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, number: int, name: str, line: bytes) -> bool:
        """Add the trajectory in a line of the file with this name; return whether the line is a trajectory."""
        at, self.offset = self.offset, self.offset + len(line)
        try:
            self._add(number, name, at, len(line), in_our_form(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self._skipped += bool(line.strip())
            return False
        return True

    def _add(self, number: int, name: str, offset: int, length: int, record: Mapping[str, Any]) -> None:
        turns, info = record.get("turns") or [], record.get("info") or {}
        results = [result for turn in turns for result in turn.get("results") or ()]
        calls = [call for turn in turns for call in turn.get("calls") or ()]
        score, row = record.get("score") or {}, record.get("row") or {}
        components = {key: float(value) for key, value in (score.get("components") or {}).items() if value is not None}
        requests = [message for message in record.get("prompt") or () if message.get("role") == "user"]
        question = str(requests[-1].get("content", "")) if requests else ""
        reward, step = score.get("total"), info.get("step")
        answer = record.get("answer")
        if answer is None and turns:
            answer = turns[-1].get("text") or ""
        self._rows.append(
            (
                number, self.file, offset, length, visible(record.get("id") or number), name,
                step if isinstance(step, int) and abs(step) < 2**62 else None,
                _label(info.get("split") or (row.get("extra_info") or {}).get("split")),
                _label(record.get("data_source")), _label(record.get("agent")), _label(record.get("stop_reason")),
                None if reward is None else float(reward), components.get("correctness", components.get("acc")),
                len(turns), len(calls),
                sum(result.get("status", "ok") != "ok" for result in results),
                sum(turn.get("malformed") is not None for turn in turns),
                record.get("response_tokens") or sum(turn.get("tokens") or 0 for turn in turns),
                record.get("seconds") or 0.0,
                None if record.get("error") is None else _stored(record["error"]),
                _prompt_key(record, question, info), _stored(question[:_SHOWN]), _stored(str(answer or "")[:_SHOWN]),
                _stored(_truth(record.get("ground_truth"))[:_SHOWN]),
            )
        )  # fmt: skip
        self._tools += [(tool, number) for tool in {visible(call.get("name")) for call in calls}]
        self._components += [(visible(key), number, value) for key, value in components.items()]
        self._texts.append((number, _stored("\n".join(_texts(record))[:_MOST_TEXT])))

    def store(self, database: sqlite3.Connection) -> None:
        """Write the rows, and the offset up to which the file has been read."""
        if self._rows:
            marks = ", ".join("?" * len(self._rows[0]))
            database.executemany(f"INSERT INTO trajectories VALUES ({marks})", self._rows)
        database.executemany("INSERT INTO tools VALUES (?, ?)", self._tools)
        database.executemany("INSERT INTO components VALUES (?, ?, ?)", self._components)
        database.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", self._texts)
        changed = [self.offset, self._skipped, self.file]
        database.execute("UPDATE files SET offset = ?, skipped = skipped + ? WHERE id = ?", changed)
        database.commit()


def _truth(value: Any) -> str:
    """Return the ground truth as text, or "" if the record has none."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def lines(source: Source, offset: int) -> Iterator[bytes]:
    """Yield whole lines from an offset; a file with a single record is one line, even if it contains line breaks."""
    if source.path.suffix == ".json":
        yield source.path.read_bytes()
    else:
        yield from (line for _, line in whole_lines(source.path, offset))


def _texts(record: Mapping[str, Any]) -> Iterator[str]:
    for message in record.get("prompt") or ():
        yield str(message.get("content", ""))
    for turn in record.get("turns") or ():
        yield str(turn.get("text", ""))
        if turn.get("observation"):
            yield str(turn["observation"])
        else:
            yield from (str(result.get("text", "")) for result in turn.get("results") or ())
        yield from (json.dumps(call.get("arguments"), ensure_ascii=False) for call in turn.get("calls") or ())
    yield from (str(record.get(name) or "") for name in ("answer", "ground_truth", "error"))
    if reward := (record.get("info") or {}).get("reward"):
        yield json.dumps(reward, ensure_ascii=False)


def _stored(text: Any) -> str:
    """Return the text without lone surrogates, which the database rejects."""
    return str(text).encode(errors="replace").decode()


def _label(value: Any) -> str | None:
    """Return a filter's value in the form that pages show, and that browsers send back."""
    return visible(value) if value else None


def _prompt_key(record: Mapping[str, Any], question: str, info: Mapping[str, Any]) -> str:
    """Return a key that is the same for all samples of a row, in all runs on the same data."""
    index = info.get("index", info.get("row"))
    text = f"{record.get('data_source', '')}\0{index if index is not None else ''}\0{question}"
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
