"""Reads data files as verl does: parquet, JSON lines, or one JSON list; and says which of them verl can join."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_rl.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SUFFIXES", "RowsFile", "differences", "read_rows"]

SUFFIXES = (".parquet", ".json", ".jsonl")
"""Of the files that verl 0.9.1 reads."""


@dataclass(frozen=True)
class RowsFile:
    """A file of rows.

    Attributes:
        path: of the file.
        count: rows in the whole file.
        schema: pyarrow's, of its columns.
        rows: the first ones.
        error: why it could not be read.
    """

    path: str
    count: int = 0
    schema: pa.Schema | None = None
    rows: Sequence[dict[str, Any]] = field(default=(), repr=False)
    error: ConfigError | None = None


def read_rows(path: str, most: int) -> RowsFile:
    """Read the first rows of a file, at most `most`; a file that cannot be read has an `error`."""
    import pyarrow as pa

    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        problem = f"verl reads {', '.join(SUFFIXES)}, not {suffix or 'a file without one of these endings'}"
        remedy = "Make rows of it with agent_rl.data.make_row and write them with agent_rl.data.write_parquet"
        return RowsFile(path, error=ConfigError(path, problem, remedy))
    if not os.path.isfile(path):
        near = [each.name for end in SUFFIXES for each in Path(path).parent.glob(f"*{end}")]
        remedy = "Make it with the recipe's data_preprocess script, or correct the path"
        remedy = did_you_mean(Path(path).name, near) if near else remedy
        return RowsFile(path, error=ConfigError(path, "there is no such file", remedy))
    kind = suffix[1:].upper() if suffix != ".parquet" else "parquet"
    try:
        return _parquet(path, most) if suffix == ".parquet" else _json(path, most)
    except (OSError, ValueError, pa.ArrowException) as error:
        text = str(error).splitlines()[0]
        return RowsFile(path, error=ConfigError(path, f"cannot be read as {kind}: {text}", "Write it again"))


def differences(one: RowsFile, other: RowsFile) -> list[str]:
    """The columns, with both types, for which verl cannot join two files; a column may be absent in one of them."""
    if one.schema is None or other.schema is None:
        return []
    kinds = {
        name: (one.schema.field(name).type, other.schema.field(name).type)
        for name in one.schema.names
        if name in other.schema.names
    }
    return [f"{name} ({ours}, {theirs})" for name, (ours, theirs) in kinds.items() if not _alike(ours, theirs)]


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """`datasets.features.features._check_if_features_can_be_aligned`, for pyarrow's types."""
    from pyarrow import types

    if _is_null(one) or _is_null(other):
        return True
    if types.is_struct(one) and types.is_struct(other):
        ours, theirs = ({each.name: each.type for each in kind} for kind in (one, other))
        return all(_alike(ours[name], theirs[name]) for name in ours.keys() & theirs.keys())
    return bool(_plain(one) == _plain(other))


def _is_null(kind: pa.DataType) -> bool:
    from pyarrow import types

    is_list = types.is_list(kind) or types.is_large_list(kind)
    return bool(types.is_null(kind) or (is_list and _is_null(kind.value_type)))


def _plain(kind: pa.DataType) -> Any:
    """A type to compare: the order of a struct's fields says nothing."""
    from pyarrow import types

    if types.is_struct(kind):
        return {each.name: _plain(each.type) for each in kind}
    if types.is_list(kind) or types.is_large_list(kind):
        return [types.is_large_list(kind), _plain(kind.value_type)]
    return str(kind)


def _parquet(path: str, most: int) -> RowsFile:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        rows: list[dict[str, Any]] = []
        for batch in file.iter_batches(min(most, 4096)):
            rows += batch.to_pylist()
            if len(rows) >= most:
                break
        return RowsFile(path, file.metadata.num_rows, file.schema_arrow, rows[:most])


def _json(path: str, most: int) -> RowsFile:
    import pyarrow as pa

    rows, count = [], 0
    with open(path, encoding="utf-8") as file:
        if file.read(1) == "[":
            file.seek(0)
            rows = json.load(file)
            rows, count = rows[:most], len(rows)
        else:
            file.seek(0)
            for number, line in enumerate(file, 1):
                if line.strip():
                    count += 1
                    rows += [_parsed(line, number)] if len(rows) < most else []
    if wrong := next((row for row in rows if not isinstance(row, Mapping)), None):
        raise ValueError(f"expected objects, got {wrong!r}")
    table = pa.Table.from_pylist(rows)
    return RowsFile(path, count, table.schema, table.to_pylist())


def _parsed(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
