"""`check_files` finds problems in data files and summarizes the files' content, in one pass.

Every row is checked against the row contract, against the existing agents, tools and scorers, and against the other
rows for duplicates. The caller supplies every check that needs a tokenizer or a scorer.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_rl.data.contract import check_row
from agent_rl.data.files import NumberedRow, without_prompt
from agent_rl.data.shapes import without_further_columns
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table
    from rich.text import Text

MOST_SHOWN = 5
"""Maximum number of findings that are kept per kind; further findings are only counted."""
MOST_VALUES = 30
"""Maximum number of values that the table shows per label; all other values share one line."""
LABELS = ("data_source", "ability", "difficulty")
CONFLICT = "two ground truths"
CONTRACT = "row contract"

Numbered = tuple[int, int, dict[str, Any]]
"""The number of a file, the number of a row in that file, and the row."""


@dataclass(frozen=True)
class RowFinding:
    """A problem with a row, or a note about it.

    Attributes:
        kind: the kind of finding, in a few words.
        text: a description of the finding.
        remedy: what the user can do to solve the problem.
        is_error: whether the row must not be used for training; other findings are notes.
    """

    kind: str
    text: str
    remedy: str
    is_error: bool = True


@dataclass
class DataReport:
    """The result of `check_files`.

    Attributes:
        files: paths of the files.
        unit: unit of prompt lengths.
        rows: number of rows in each file.
        lengths: for each row, the values of `LABELS` and the length of the prompt.
        counts: number of rows with a finding, by kind.
        errors: kinds of findings that are errors; rows with such findings must not be used for training.
        shown: the first findings of each kind, with the location of the row.
        bad: for every row with errors, the first of them, by (file, row).
        graded: number of ground truths that were scored.
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
    _last: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    """For each kind of finding, the row to which a finding was last added."""

    def labels(self) -> dict[str, pd.DataFrame]:
        """For each of `LABELS`, return a table with row counts and prompt lengths per value, most frequent value first.

        The columns of a table are `rows` and, for the prompt lengths, `mean`, `median`, `most` (the 95th percentile)
        and `longest`.
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
        """Add a finding about a row; findings of one kind about the same row must follow each other."""
        self.counts[finding.kind] += self._last.get(finding.kind) != (file, row)
        self._last[finding.kind] = file, row
        shown = self.shown.setdefault(finding.kind, [])
        if len(shown) < MOST_SHOWN:
            shown.append((f"{self.files[file]}, row {row}", finding))
        if finding.is_error:
            self.errors.add(finding.kind)
            self.bad.setdefault((file, row), f"{finding.kind}: {finding.text}"[:500])

    def grade(self, rows: Sequence[Numbered], known: Rows) -> None:
        """Score the ground truths of some rows, and add the findings."""
        self.graded = len(rows)
        for finding in known.grade(rows):
            self.add(*finding)

    def table(self) -> Table:
        """Return a table for a terminal, with row counts by data source, ability and difficulty."""
        from rich.table import Table
        from rich.text import Text

        count = len(self.files)
        result = Table(title=f"{_rows(sum(self.rows))} in {count} file{'s' * (count > 1)}")
        result.add_column("", style="bold")
        for name in ("rows", f"mean {self.unit}", "median", "95th percentile", "longest"):
            result.add_column(name, justify="right")
        for label, values in self.labels().items():
            result.add_section()
            for value, rows, *lengths in values[:MOST_VALUES].itertuples():
                result.add_row(Text(f"{label} {value}"), f"{rows:,}", *(f"{length:,.0f}" for length in lengths))
            if len(others := values[MOST_VALUES:]):
                counts = f"{others.rows.sum():,}", "", "", "", f"{others.longest.max():,}"
                result.add_row(f"{label} (others: {len(others)})", *counts)
        result.caption = f"{self.graded:,} ground truths were scored"
        return result

    def lines(self) -> Iterator[Text]:
        """Yield one line per kind of finding, the most frequent first, with its number of rows and first locations."""
        from rich.text import Text

        for kind, count in self.counts.most_common():
            is_error = kind in self.errors
            (place, finding), *others = self.shown[kind]
            places = [other for other in dict.fromkeys(other for other, _ in others) if other != place]
            more = f". Also {'; '.join(places)}" if places else ""
            head = (f"{'error' if is_error else 'note '} {kind}, {_rows(count)}: ", "red" if is_error else "yellow")
            yield Text.assemble(head, f"{place}: {finding.text}. {finding.remedy.rstrip('.')}{more}")

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        findings = [
            {
                "kind": kind,
                "rows": count,
                "error": kind in self.errors,
                "examples": [
                    {"place": place, "text": row.text, "remedy": row.remedy} for place, row in self.shown[kind]
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
    """Checks and settings that the caller of `check_files` supplies.

    Attributes:
        names: returns a finding for each agent, tool or scorer that a row names but that does not exist.
        length: returns the length of the prompt as the model sees it, in `unit`.
        unit: unit of prompt lengths.
        grade: returns findings about the ground truths of some rows.
        sample: number of rows that `grade` gets, drawn at random with `seed`; None means all rows.
        seed: random seed for the sample.
        defaults: default values of columns, for example the recipe's agent.
    """

    names: Callable[[Mapping[str, Any]], Iterable[RowFinding]] = lambda row: ()
    length: Callable[[Mapping[str, Any]], int] = lambda row: len(_prompt_text(row))
    unit: str = "characters"
    grade: Callable[[Sequence[Numbered]], Iterable[tuple[int, int, RowFinding]]] = lambda rows: ()
    sample: int | None = 2_000
    seed: int = 0
    defaults: Mapping[str, Any] = field(default_factory=dict)


def check_files(
    files: Mapping[str, Iterable[NumberedRow]], known: Rows, progress: Callable[[], None] = lambda: None
) -> tuple[DataReport, list[Numbered]]:
    """Check data files; return the report, and the rows whose ground truths `DataReport.grade` should score.

    Args:
        files: the rows of each file by the file's path, as `iterate_rows` yields them.
        known: the checks that the caller supplies.
        progress: called for each row.

    Raises:
        ConfigError: a file cannot be read.
    """
    report, digests, draw = DataReport(list(files), known.unit), list[tuple[Any, ...]](), random.Random(known.seed)

    def checked() -> Iterator[Numbered]:
        for file, rows in enumerate(files.values()):
            report.rows.append(0)
            for place, number, row, changes in rows:
                progress()
                report.rows[file] += 1
                if row.get("prompt") is None:
                    columns = [name for name in row if name != "extra_info"]
                    report.add(file, number, RowFinding(CONTRACT, *without_prompt(report.files[file], columns)))
                    continue
                if changes:
                    text = "; ".join(changes)
                    report.add(file, number, RowFinding("converted when read", text, "No action needed", False))
                row = {**known.defaults, **row}
                if _check_one(report, (file, number), row, place, known):
                    task = _digest(_prompt_text(row), _context(row))
                    truth = _digest(json.dumps(row["reward_model"], sort_keys=True, default=str))
                    digests.append((file, number, str(row["extra_info"].get("split")), task, truth))
                    yield file, number, row

    most = sys.maxsize if known.sample is None else known.sample
    drawn = heapq.nlargest(max(most, 1), checked(), key=lambda _: draw.random())[:most]
    for file, number, finding in _duplicates(digests, report.files):
        report.add(file, number, finding)
    return report, sorted(drawn, key=lambda row: row[:2])


def _check_one(report: DataReport, place: tuple[int, int], row: dict[str, Any], where: str, known: Rows) -> bool:
    """Check a row on its own and record its prompt's length; return whether further checks can use the row."""
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
    except Exception as error:  # noqa: BLE001 - a chat template's error becomes a finding about this row
        text = f"the chat template rejects the prompt: {' '.join(str(error).split())[:200]}"
        report.add(*place, RowFinding("prompt", text, "Write the turns in a form that this model's template accepts"))
        return True
    difficulty = row["extra_info"].get("difficulty")
    label = None if difficulty is None else f"{difficulty:.1f}"
    report.lengths.append((row["data_source"], row.get("ability"), label, length))
    return True


def _duplicates(digests: Sequence[tuple[Any, ...]], files: Sequence[str]) -> Iterator[tuple[int, int, RowFinding]]:
    """Yield findings about rows with the same task as an earlier row; differences in whitespace are ignored."""
    import pandas as pd

    rows = pd.DataFrame(digests, columns=["file", "row", "split", "task", "truth"])
    firsts, in_conflict = rows.drop_duplicates("task"), set[bytes]()
    for row in rows[rows.duplicated("task")].merge(firsts, "left", "task", suffixes=("", "_of_first")).itertuples():
        first = f"row {row.row_of_first}"
        if row.file != row.file_of_first:
            first = f"{files[row.file_of_first]}, {first}"
        if row.truth != row.truth_of_first:
            pair = [(row.file, row.row, first)]
            if row.task not in in_conflict:
                pair.append((row.file_of_first, row.row_of_first, f"{files[row.file]}, row {row.row}"))
            in_conflict.add(row.task)
            for file, number, other in pair:
                text = f"{other} asks the same question and has a different ground truth"
                yield file, number, RowFinding(CONFLICT, text, "Keep the row with the right ground truth")
        elif row.split != row.split_of_first:
            remedy = "Remove the row from one split, because rows that are used for training cannot measure progress"
            yield row.file, row.row, RowFinding("in two splits", f"{first} asks the same question", remedy)
        else:
            yield row.file, row.row, RowFinding("duplicate", f"{first} asks the same question", "Keep one row", False)


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


def _quantile(lengths: Any, share: float) -> int:
    return int(np.quantile(lengths, share, method="inverted_cdf"))


def _digest(text: str, context: str = "") -> bytes:
    return hashlib.blake2b(f"{' '.join(text.split())}\0{context}".encode(), digest_size=12).digest()


def _prompt_text(row: Mapping[str, Any]) -> str:
    return "\n".join(str(message.get("content", "")) for message in row["prompt"])


def _context(row: Mapping[str, Any]) -> str:
    """Return the columns that, together with the prompt, identify a row's task: tools, user, environment and media."""
    info = row["extra_info"]
    keys = ("tools_kwargs", "tool_selection", "functions", "interaction_kwargs", "user", "environment_row")
    parts = [info.get(key) for key in keys]
    parts += [row.get("images"), row.get("videos")]
    return json.dumps(parts, sort_keys=True, default=repr) if any(parts) else ""


def write_good(
    report: DataReport,
    files: Mapping[str, Iterable[NumberedRow]],
    write: Callable[[dict[str, Any]], None],
    rejected: Path,
) -> None:
    """Write the rows without errors, and write the rejected rows, with the reasons, to a second file.

    Columns of good rows that are not in the contract move into `extra_info`.

    Args:
        report: the report on the same files.
        files: the rows of each file, read a second time.
        write: function that writes a good row.
        rejected: file to which a line of JSON is written per rejected row: its file, number, reason and content.
    """
    with open(rejected, "w", encoding="utf-8") as out:
        for file, rows in enumerate(files.values()):
            for _, number, row, _ in rows:
                if (reason := report.bad.get((file, number))) is None:
                    write(without_further_columns(row))
                else:
                    line = {"file": report.files[file], "row": number, "reason": reason, "content": row}
                    out.write(json.dumps(line, default=repr, ensure_ascii=False) + "\n")
