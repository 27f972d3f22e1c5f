"""Reads the parquet files of a run: number of rows, columns, and the first rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_rl.errors import ConfigError

__all__ = ["MOST_ROWS", "RowsFile", "read_rows"]

MOST_ROWS = 20_000
"""Rows of one file that are checked: its first."""


@dataclass(frozen=True)
class RowsFile:
    """A parquet file of rows.

    Attributes:
        path: of the file.
        count: rows in the whole file.
        columns: their names and types, as text.
        rows: the first `MOST_ROWS`.
        error: why it could not be read.
    """

    path: str
    count: int = 0
    columns: dict[str, str] = field(default_factory=dict)
    rows: Sequence[dict[str, Any]] = ()
    error: ConfigError | None = None


def read_rows(path: str) -> RowsFile:
    """Read a parquet file; one that cannot be read has an `error`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not os.path.isfile(path):
        remedy = "Make it with the recipe's data_preprocess script, or correct the path"
        return RowsFile(path, error=ConfigError(path, "there is no such file", remedy))
    try:
        with pq.ParquetFile(path) as file:
            rows: list[dict[str, Any]] = []
            for batch in file.iter_batches(min(MOST_ROWS, 4096)):
                rows += batch.to_pylist()
                if len(rows) >= MOST_ROWS:
                    break
            columns = {each.name: str(each.type) for each in file.schema_arrow}
            return RowsFile(path, file.metadata.num_rows, columns, rows[:MOST_ROWS])
    except (OSError, pa.ArrowException) as error:
        text = str(error).splitlines()[0]
        return RowsFile(path, error=ConfigError(path, f"cannot be read as parquet: {text}", "Write it again"))
