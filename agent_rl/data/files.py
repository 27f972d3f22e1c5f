"""Reads data files as verl does (parquet, JSON lines, or one JSON list), and finds files that verl cannot join."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agent_rl.data.contract import check_rows
from agent_rl.data.shapes import as_row
from agent_rl.data.sources import read_raw
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".json", ".jsonl")
"""Suffixes of the files that verl 0.9.1 reads."""
QUESTIONS = ("question", "problem", "query", "instruction", "input", "text")
ANSWERS = ("answer", "solution", "output", "response", "label", "target")
"""Names of columns that probably contain the question and the right answer."""


class NumberedRow(NamedTuple):
    """A row with its location.

    Attributes:
        place: file and row or line, for messages.
        number: number of the row in its file, counting from 0.
        row: the unpacked row, without null columns.
        changes: the changes that `as_row` made to the row so that it fits the contract.
    """

    place: str
    number: int
    row: dict[str, Any]
    changes: Sequence[str]


@dataclass(frozen=True)
class RowsFile:
    """A file of rows.

    Attributes:
        path: path of the file.
        count: number of rows in the whole file.
        schema: pyarrow's schema of the columns.
        rows: the first rows.
        error: the reason why the file could not be read.
        changes: the changes that `as_row` made to rows so that they fit the contract.
    """

    path: str
    count: int = 0
    schema: pa.Schema | None = None
    rows: Sequence[dict[str, Any]] = field(default=(), repr=False)
    error: ConfigError | None = None
    changes: Sequence[str] = ()


def iterate_rows(path: str) -> Iterator[NumberedRow]:
    """Yield the rows of a file without checking the rows.

    Raises:
        ConfigError: the file cannot be read, or a line or row is broken.
    """
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        problem = f"verl reads {', '.join(SUFFIXES)}, not {suffix or 'a file without one of these extensions'}"
        remedy = "Convert the file with agent-rl data convert, or with agent_rl.data.make_row and write_parquet"
        raise ConfigError(path, problem, remedy)
    for number, raw in enumerate(read_raw(path)):
        row, changes = as_row(raw.value, number=number, place=raw.place)
        yield NumberedRow(raw.place, number, {key: value for key, value in row.items() if value is not None}, changes)


def check_file(path: str) -> None:
    """Check a file of rows against the contract.

    Raises:
        ConfigError: the file cannot be read, or a row breaks the contract.
    """
    check_rows((numbered.row for numbered in iterate_rows(path)), source=path)


def read_rows(path: str, most: int) -> RowsFile:
    """Read at most `most` rows from the start of a file; if the file cannot be read, the result contains an `error`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = list(islice(iterate_rows(path), most))
        if Path(path).suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                count, schema = file.metadata.num_rows, file.schema_arrow
        else:
            raws = read_raw(path)
            values = [raw.value for raw in islice(raws, most)]
            count, schema = len(values) + sum(1 for _ in raws), pa.Table.from_pylist(values).schema
    except ConfigError as error:
        return RowsFile(path, error=error)
    except (pa.ArrowException, OverflowError) as error:
        problem = f"verl cannot read the file as a table: {str(error).splitlines()[0]}"
        return RowsFile(path, error=ConfigError(path, problem, "Give each key the same type in all rows"))
    changes = tuple(dict.fromkeys(change for row in rows for change in row.changes))
    return RowsFile(path, count, schema, [row.row for row in rows], changes=changes)


def differences(one: RowsFile, other: RowsFile) -> list[str]:
    """Return the columns whose differing types prevent verl from joining the two files, each with both types."""
    import pyarrow as pa
    from datasets import Dataset, concatenate_datasets  # verl joins files with `concatenate_datasets`

    conflicts = []
    schemas = [file.schema for file in (one, other) if file.schema is not None]
    for name in set.intersection(*(set(schema.names) for schema in schemas)) if len(schemas) == 2 else ():
        kinds = [schema.field(name).type for schema in schemas]
        try:
            concatenate_datasets([Dataset(pa.table({name: pa.nulls(1, kind)})) for kind in kinds])
        except (TypeError, ValueError):
            conflicts.append(f"{name} ({', '.join(map(str, kinds))})")
    return sorted(conflicts)


def without_prompt(path: str, columns: Sequence[str]) -> tuple[str, str]:
    """Return the message about a file without a prompt column, and the remedy: the command that converts the file."""
    question, answer = (next((name for name in names if name in columns), "COLUMN") for names in (QUESTIONS, ANSWERS))
    command = ["agent-rl", "data", "convert", path, "--prompt", question, "--answer", answer]
    problem = f"{path} has no prompt column, only {', '.join(map(str, columns))}"
    return problem, f"Convert the file to rows with: {shlex.join(command)}"
