"""`check_files`: what is wrong with data files, and what is in them, in one pass.

Each row is held against the row contract, against what is known to exist (agents, tools, scorers) and against the other
rows (asked twice). What needs a tokenizer or a scorer is given by the caller: this module knows neither.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agent_rl.data.contract import check_row
from agent_rl.data.files import NumberedRow
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["CONTRACT", "DataReport", "RowFinding", "Rows", "check_files", "write_good"]

MOST_SHOWN = 5
"""Findings of one kind that are kept; the others are counted."""
LABELS = ("data_source", "ability", "difficulty")
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


class _RowDigest(NamedTuple):
    """What a row asks: `task` and `truth` are digests."""

    file: int
    row: int
    split: str
    task: bytes
    truth: bytes


@dataclass
class DataReport:
    """What `check_files` found.

    Attributes:
        files: the files.
        unit: of lengths.
        rows: rows in each of the files.
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

    def labels(self) -> dict[str, pd.DataFrame]:
        """For each of `LABELS` a table by its value, the most frequent first, of what the rows are like.

        Its columns are `rows`, and of the lengths of their prompts `mean`, `median`, `most` (what 95 % of the rows do
        not exceed) and `longest`.
        """
        import pandas as pd

        if not self.lengths:
            return {}
        lengths = pd.DataFrame(self.lengths, columns=[*LABELS, "length"])
        tables = {}
        for label in LABELS:
            by_value = lengths.groupby(lengths[label].fillna("(none)"))["length"]
            quantiles = {"median": partial(_quantile, share=0.5), "most": partial(_quantile, share=0.95)}
            table = by_value.agg(rows="count", mean="mean", **quantiles, longest="max")
            tables[label] = table.sort_values("rows", ascending=False, kind="stable")
        return tables

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
            "labels": {label: table.to_dict("index") for label, table in self.labels().items()},
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
    files: Mapping[str, Iterable[NumberedRow]], known: Rows, progress: Callable[[], None] = lambda: None
) -> DataReport:
    """Check data files.

    Args:
        files: the rows of each file, by its path, as `iterate_rows` reads them.
        known: what there is beside the files.
        progress: is called for each row.

    Raises:
        ConfigError: a file cannot be read.
    """
    report, drawn, digests = DataReport(list(files), known.unit), _Drawn(known.sample, known.seed), list[_RowDigest]()
    for file, rows in enumerate(files.values()):
        report.rows.append(0)
        for place, number, row, changes in rows:
            progress()
            report.rows[file] += 1
            for change in changes:
                report.add(file, number, RowFinding("read as a row", change, "Nothing: training reads it so", False))
            row = {**known.defaults, **row}
            if _check(report, (file, number), row, place, known):
                split = str(row["extra_info"].get("split"))
                digests.append(_RowDigest(file, number, split, _digest(_asked(row), _more(row)), _digest(_truth(row))))
                drawn.add((file, number, row))
    for file, number, finding in _repeated(digests, report.files):
        report.add(file, number, finding)
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


def _repeated(digests: Sequence[_RowDigest], files: Sequence[str]) -> Iterator[tuple[int, int, RowFinding]]:
    """Findings on the rows that ask what an earlier one asks, word for word; white space does not count."""
    import pandas as pd

    rows = pd.DataFrame(digests, columns=_RowDigest._fields)
    firsts = rows.drop_duplicates("task")
    for each in rows[rows.duplicated("task")].merge(firsts, "left", "task", suffixes=("", "_of_first")).itertuples():
        first = f"row {each.row_of_first}"
        if each.file != each.file_of_first:
            first = f"{files[each.file_of_first]}, {first}"
        if each.truth != each.truth_of_first:
            pair = (
                (each.file, each.row, first),
                (each.file_of_first, each.row_of_first, f"{files[each.file]}, row {each.row}"),
            )
            for file, row, other in pair:
                text = f"{other} asks the same and has another ground truth"
                yield file, row, RowFinding(CONFLICT, text, "Keep the right one")
        elif each.split != each.split_of_first:
            remedy = "Leave it out of one: what was trained on measures nothing"
            yield each.file, each.row, RowFinding("in two splits", f"{first} asks the same", remedy)
        else:
            yield each.file, each.row, RowFinding("asked twice", f"{first} asks the same", "Keep one of them", False)


def _quantile(lengths: Any, share: float) -> int:
    return int(np.quantile(lengths, share, method="inverted_cdf"))


def _digest(text: str, more: str = "") -> bytes:
    return hashlib.blake2b(f"{' '.join(text.split())}\0{more}".encode(), digest_size=12).digest()


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
