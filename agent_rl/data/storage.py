"""Stores rows with one parquet schema for all data sets, so that any data sets can share a file or a run.

verl joins files as typed tables. `tools_kwargs`, the keys of `extra_info` and the types of ground truths differ between
data sets, so a typed table would fill gaps with nulls or refuse to join. Therefore the structs `reward_model` and
`extra_info` have a few fields of a fixed type, and a `packed` field: a JSON object with all keys that have no field, or
whose value has another type. `unpacked` restores the row. The package's readers, data set class, agent loops and reward
manager call `unpacked`, so agents, tools and rewards get the original row.

Files from other tools have typed structs and no `packed` field; their rows are read unchanged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from agent_rl.data.contract import check_row
from agent_rl.data.sources import read_raw
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.trajectory import as_json_type

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

PACKED = "packed"
BATCH = 1_000
"""Maximum number of rows in memory and in a row group of the file."""
FIELDS: dict[str, dict[str, type]] = {
    "reward_model": {"style": str, "ground_truth": str},
    "extra_info": {
        "split": str,
        "question": str,
        "need_tools_kwargs": bool,
        "tool_selection": list,
    },
}
"""The struct fields that have a fixed type, with the Python type of each field.

`index` is not one of these fields, because an index is a number in some data sets and text in others.
"""


@cache
def row_schema() -> pa.Schema:
    """Return the schema of every file that this package writes."""
    import pyarrow as pa

    text = pa.string()
    messages = pa.list_(pa.struct([("role", text), ("content", text)]))
    types = {str: text, bool: pa.bool_(), list: pa.list_(text)}
    structs = {
        name: pa.struct([*((key, types[kind]) for key, kind in fields.items()), (PACKED, text)])
        for name, fields in FIELDS.items()
    }
    columns = {
        "data_source": text,
        "agent_name": text,
        "prompt": messages,
        "ability": text,
        **structs,
        "images": pa.list_(pa.struct([("bytes", pa.binary()), ("path", text)])),
        "videos": pa.list_(text),
        "rm_prompt": messages,
    }
    return pa.schema(list(columns.items()))


def unpacked(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the original row from its stored form; any other row is returned unchanged."""
    result = dict(row)
    for name in FIELDS:
        struct = result.get(name)
        if isinstance(struct, Mapping) and PACKED in struct:  # in joined tables, PACKED is null in other tools' rows
            fields = {key: value for key, value in struct.items() if value is not None and key != PACKED}
            result[name] = fields | json.loads(struct[PACKED] or "{}")
    return result


class RowWriter:
    """Writes rows to a file in batches; the file appears when the `with` block ends without an error.

        with RowWriter("train.parquet") as writer:
            for row in rows:
                writer.write(row)

    Raises:
        ConfigError: a row breaks the contract or JSON cannot represent it (the error names the file, row and column),
            the file cannot be written, or no row was written in the block.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.count = 0
        """Number of rows written so far."""
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        self._batch: list[dict[str, Any]] = []
        self._file: Any = None

    def write(self, row: Mapping[str, Any]) -> None:
        """Check a row and add it to the file."""
        place = f"{self.path}, row {self.count}"
        check_row(row, place)
        names = row_schema().names
        if further := [name for name in row if name not in names]:
            remedy = f"{did_you_mean(further[0], names)} Put your own data in extra_info"
            raise ConfigError(f"{place}, column {further[0]}", "it is not a column of the row contract", remedy)
        self._batch.append(_packed(row, place))
        self.count += 1
        if len(self._batch) >= BATCH:
            self._flush()

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                if not self.count:
                    raise ConfigError(str(self.path), "there are no rows", "Check the source of the rows")
                self._flush()
            if self._file is not None:
                self._file.close()
            if kind is None:
                os.replace(self._temporary, self.path)
        except OSError as failure:
            raise self._unwritable(failure) from failure
        finally:
            if self._file is not None:
                self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        import pyarrow.parquet as pq

        if not self._batch:
            return
        table = _table(self._batch, self.path, self.count - len(self._batch))
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = pq.ParquetWriter(self._temporary, row_schema())
            self._file.write_table(table)
        except OSError as failure:
            raise self._unwritable(failure) from failure
        self._batch.clear()

    def _unwritable(self, error: OSError) -> ConfigError:
        problem = f"it cannot be written: {error.strerror or error}"
        return ConfigError(str(self.path), problem, "Choose a folder you can write to")


def write_parquet(rows: Iterable[Mapping[str, Any]] | pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Check the rows and write them in one atomic step; parent folders are created.

    Args:
        rows: the rows, or a table of rows, in which a missing value means that the row does not have this column.
        path: the file.

    Raises:
        ConfigError: see `RowWriter`.
    """
    records = (row.dropna().to_dict() for _, row in rows.iterrows()) if hasattr(rows, "iterrows") else rows
    with RowWriter(path) as writer:
        for row in records:
            writer.write(row)


def read_parquet(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the original rows of a parquet file, without columns that are null.

    Raises:
        ConfigError: the file does not exist, is not parquet, or has no rows.
    """
    rows = (unpacked(raw.value) for raw in read_raw(path))
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def _packed(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return the stored form of a row, in which values that fit no field of their struct become JSON."""
    stored = dict(row)
    for name, fields in FIELDS.items():
        typed: dict[str, Any] = {}
        rest: list[str] = []
        for key, value in row[name].items():
            if key in fields and _fits(value, fields[key]):
                typed[key] = value
            else:
                rest.append(
                    f"{json.dumps(str(key), ensure_ascii=False)}: {_json(value, f'{place}, column {name}.{key}')}"
                )
        stored[name] = typed | {PACKED: f"{{{', '.join(rest)}}}"}
    if row.get("images"):
        stored["images"] = [item if isinstance(item, Mapping) else {"path": os.fspath(item)} for item in row["images"]]
    return stored


def _fits(value: Any, kind: Any) -> bool:
    return type(value) is kind and (kind is not list or all(type(item) is str for item in value))


def _table(rows: list[dict[str, Any]], path: Path, first: int) -> pa.Table:
    """Return the rows as a table; if arrow rejects rows, the error names the first rejected row."""
    import pyarrow as pa

    try:
        return pa.Table.from_pylist(rows, schema=row_schema())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if len(rows) == 1:
            remedy = "Write text that UTF-8 can encode, and media as {'bytes': ...} or {'path': ...}"
            raise ConfigError(f"{path}, row {first}", f"parquet cannot store it ({error})", remedy) from error
        for number, row in enumerate(rows):
            _table([row], path, first + number)
        raise


def _json(value: Any, place: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=as_json_type)
        text.encode()  # fails for an unpaired surrogate, here where the row is known instead of later in a batch
        return text
    except (TypeError, ValueError, RecursionError) as error:
        remedy = "Write text, numbers, lists and mappings; put media in images and videos"
        raise ConfigError(place, f"JSON cannot represent {value!r:.80} ({error})", remedy) from error
