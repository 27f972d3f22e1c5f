"""`check_files`: what is wrong with data files, and what is in them, in one pass and bounded memory.

Each row is held against the row contract, against what is known to exist (agents, tools, scorers) and against the other
rows (asked twice, asked alike). What needs a tokenizer or a scorer is given by the caller: this module knows neither.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from agent_rl.data.contract import check_row
from agent_rl.data.duplicates import Duplicates, Repeated
from agent_rl.data.files import NumberedRow
from agent_rl.errors import ConfigError

__all__ = ["CONTRACT", "DataReport", "RowFinding", "Rows", "Statistics", "check_files", "write_good"]

MOST_SHOWN = 5
"""Findings of one kind that are kept; the others are counted."""
LABELS = ("data_source", "ability", "difficulty")
_STATISTICS = """
    SELECT coalesce({label}::VARCHAR, '(none)'), count(*), avg(length), quantile_disc(length, 0.5),
    quantile_disc(length, 0.95), max(length) FROM rows GROUP BY {label} ORDER BY count(*) DESC, {label}"""
CONFLICT = "two ground truths"
CONTRACT = "row contract"

Numbered = tuple[int, int, dict[str, Any]]
"""Number of the file, number of the row in it, and the row."""


@dataclass(frozen=True)
class RowFinding:
    """What is wrong with a row.

    Attributes:
        kind: of the finding, a few words.
        text: what was found.
        remedy: what to do.
        is_error: whether the row must not be trained on; other findings are worth a look.
    """

    kind: str
    text: str
    remedy: str
    is_error: bool = True


@dataclass(frozen=True)
class Statistics:
    """What the rows of one label are like: their number, and the lengths of their prompts."""

    rows: int
    mean: float
    median: int
    most: int
    """The length that 95 % of the rows do not exceed."""
    longest: int


@dataclass
class DataReport:
    """What `check_files` found.

    Attributes:
        files: the files.
        unit: of lengths.
        rows: rows in each of the files.
        splits: the values of `extra_info.split` in each of them.
        lengths: `LABELS` of each row, and the length of its prompt.
        counts: findings of each kind.
        errors: the kinds that are errors.
        shown: for each kind the first findings, with the place of the row.
        bad: rows with an error: (file, row) and the reason.
        graded: how many ground truths were scored.
    """

    files: list[str]
    unit: str
    rows: list[int] = field(default_factory=list)
    splits: list[set[str]] = field(default_factory=list)
    lengths: list[tuple[str, str | None, str | None, int]] = field(default_factory=list, repr=False)
    counts: Counter[str] = field(default_factory=Counter)
    errors: set[str] = field(default_factory=set)
    shown: dict[str, list[tuple[str, RowFinding]]] = field(default_factory=dict)
    bad: dict[tuple[int, int], str] = field(default_factory=dict)
    graded: int = 0

    @property
    def has_errors(self) -> bool:
        """Whether any row must not be trained on."""
        return bool(self.errors)

    @cached_property
    def labels(self) -> dict[str, dict[str, Statistics]]:
        """Statistics of the rows by label and its value, the most frequent first."""
        import duckdb
        import pyarrow as pa

        if not self.lengths:
            return {}
        columns = zip((*LABELS, "length"), zip(*self.lengths, strict=True), strict=True)
        table, found = pa.table({name: list(column) for name, column in columns}), {}
        with duckdb.connect() as database:
            database.register("rows", table)
            for label in LABELS:
                rows = database.execute(_STATISTICS.format(label=label)).fetchall()
                found[label] = {value: Statistics(*figures) for value, *figures in rows}
        return found

    def add(self, file: int, row: int, finding: RowFinding) -> None:
        """Count a finding on a row."""
        self.counts[finding.kind] += 1
        shown = self.shown.setdefault(finding.kind, [])
        if len(shown) < MOST_SHOWN:
            shown.append((f"{self.files[file]}, row {row}", finding))
        if finding.is_error:
            self.errors.add(finding.kind)
            self.bad.setdefault((file, row), f"{finding.kind}: {finding.text}"[:500])

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        labels = {label: {value: asdict(its) for value, its in values.items()} for label, values in self.labels.items()}
        findings = [
            {
                "kind": kind,
                "rows": count,
                "error": kind in self.errors,
                "examples": [
                    {"place": place, "text": one.text, "remedy": one.remedy} for place, one in self.shown[kind]
                ],
            }
            for kind, count in self.counts.most_common()
        ]
        return {
            "files": dict(zip(self.files, self.rows, strict=True)),
            "unit": self.unit,
            "labels": labels,
            "findings": findings,
            "graded": self.graded,
        }


@dataclass(frozen=True)
class Rows:
    """What the caller knows about rows.

    Attributes:
        names: findings about names that do not exist.
        length: length of the prompt as the model sees it, in `unit`.
        unit: of lengths.
        grade: findings about the ground truths of some rows, asked once at the end.
        sample: rows that `grade` gets, drawn by `seed`; None: all.
        seed: of the drawing.
        defaults: columns of rows that have none, for example the agent of the recipe.
    """

    names: Callable[[Mapping[str, Any]], Iterable[RowFinding]] = lambda row: ()
    length: Callable[[Mapping[str, Any]], int] = lambda row: len(_asked(row))
    unit: str = "characters"
    grade: Callable[[Sequence[Numbered]], Iterable[tuple[int, int, RowFinding]]] = lambda rows: ()
    sample: int | None = 2_000
    seed: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)


def check_files(
    files: Mapping[str, Iterable[NumberedRow]],
    known: Rows,
    progress: Callable[[], None] = lambda: None,
    most_compared: float = math.inf,
) -> DataReport:
    """Check data files.

    Args:
        files: the rows of each file, by its path, as `iterate_rows` reads them.
        known: what there is beside the files.
        progress: is called for each row.
        most_compared: rows of each file, its first, that are held against the others.

    Raises:
        ConfigError: a file cannot be read.
    """
    report = DataReport(list(files), known.unit)
    drawn = _Drawn(known.sample, known.seed)
    with Duplicates() as duplicates:
        for file, (_path, rows) in enumerate(files.items()):
            report.rows.append(0)
            report.splits.append(set())
            for place, number, row, changes in rows:
                progress()
                report.rows[file] += 1
                for change in changes:
                    report.add(
                        file, number, RowFinding("read as a row", change, "Nothing: training reads it so", False)
                    )
                row = {**known.defaults, **row}
                if _check(report, (file, number), row, place, known):
                    report.splits[file].add(str(row["extra_info"].get("split")))
                    if report.rows[file] <= most_compared:
                        duplicates.add(file, number, _asked(row), _truth(row), _more(row))
                    drawn.add((file, number, row))
        for repeated in duplicates.found():
            report.add(repeated.file, repeated.row, finding := _repeated(repeated, report))
            if finding.kind == CONFLICT:
                text = f"{report.files[repeated.file]}, row {repeated.row} asks the same and has another ground truth"
                report.add(*repeated.first, replace(finding, text=text))
    rows_to_grade = sorted(drawn.rows, key=lambda each: each[:2])
    report.graded = len(rows_to_grade)
    for file, number, finding in known.grade(rows_to_grade):
        report.add(file, number, finding)
    return report


def _check(report: DataReport, place: tuple[int, int], row: dict[str, Any], where: str, known: Rows) -> bool:
    """Check a row by itself and note its length; whether it can be looked at further."""
    try:
        check_row(row, where)
    except ConfigError as error:
        column = str(error.key).removeprefix(where).lstrip(", ")
        report.add(*place, RowFinding(CONTRACT, f"{column}: {error.problem}", error.remedy))
        return False
    for finding in known.names(row):
        report.add(*place, finding)
    try:
        length = known.length(row)
    except Exception as error:  # noqa: BLE001 - of a chat template, about this row
        text = f"the chat template refuses the prompt: {' '.join(str(error).split())[:200]}"
        report.add(*place, RowFinding("prompt", text, "Write the turns as this model's template wants them"))
        return True
    difficulty = row["extra_info"].get("difficulty")
    label = None if difficulty is None else f"{difficulty:.1f}"
    report.lengths.append((row["data_source"], row.get("ability"), label, length))
    return True


class _Drawn:
    """Some of many rows, all with the same chance: a reservoir."""

    def __init__(self, most: int | None, seed: int) -> None:
        self.rows: list[Numbered] = []
        self._most, self._random, self._seen = most, random.Random(seed), 0

    def add(self, row: Numbered) -> None:
        self._seen += 1
        if self._most is None or len(self.rows) < self._most:
            self.rows.append(row)
        elif (place := self._random.randrange(self._seen)) < self._most:
            self.rows[place] = row


def _repeated(found: Repeated, report: DataReport) -> RowFinding:
    file, row = found.first
    first = f"row {row}" if file == found.file else f"{report.files[file]}, row {row}"
    shared = report.splits[file] != report.splits[found.file]
    if not found.is_exact:
        text = f"{found.similarity:.0%} of it is {first}"
        kind = "nearly in two splits" if shared else "nearly asked twice"
        return RowFinding(kind, text, "Look at both rows", is_error=False)
    if not found.same_truth:
        text = f"{first} asks the same and has another ground truth"
        return RowFinding(CONFLICT, text, "Keep the right one")
    if shared:
        text = f"{first} asks the same"
        return RowFinding("in two splits", text, "Leave it out of one: what was trained on measures nothing")
    return RowFinding("asked twice", f"{first} asks the same", "Keep one of them", is_error=False)


def _asked(row: Mapping[str, Any]) -> str:
    """The text of the prompt."""
    return "\n".join(str(message.get("content", "")) for message in row["prompt"])


def _truth(row: Mapping[str, Any]) -> str:
    return json.dumps(row["reward_model"], sort_keys=True, default=str)


def _more(row: Mapping[str, Any]) -> str:
    """What else makes a row another task: its tools, its user, its media."""
    info = row["extra_info"]
    parts = [info.get(key) for key in ("tools_kwargs", "tool_selection", "interaction_kwargs", "user")]
    parts += [row.get("images"), row.get("videos")]
    return json.dumps(parts, sort_keys=True, default=repr) if any(parts) else ""


def write_good(
    report: DataReport,
    files: Mapping[str, Iterable[NumberedRow]],
    write: Callable[[dict[str, Any]], None],
    rejected: Path,
) -> None:
    """Write the rows without an error, and beside them the others with their reasons.

    Args:
        report: of the same files.
        files: the rows of each file, once more.
        write: takes a good row.
        rejected: gets a line of JSON for each of the others: file, row, reason and the row.
    """
    with open(rejected, "w", encoding="utf-8") as out:
        for file, rows in enumerate(files.values()):
            for _, number, row, _ in rows:
                if (reason := report.bad.get((file, number))) is None:
                    write(row)
                else:
                    line = {"file": report.files[file], "row": number, "reason": reason, "content": row}
                    out.write(json.dumps(line, default=repr, ensure_ascii=False) + "\n")
