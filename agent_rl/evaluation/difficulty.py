"""How hard each row is for a policy, from the samples of an evaluation, as a column that training can order rows by."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent_rl.data import write_parquet
from agent_rl.evaluation.ledger import Record
from agent_rl.evaluation.summary import is_solved

__all__ = ["write_difficulty"]


def write_difficulty(records: Iterable[Record], rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> int:
    """Write the rows with `extra_info.difficulty`: 0 where every sample is right, 1 where none is.

    Args:
        records: of the evaluation's episodes.
        rows: that were evaluated, in their order; one without a scored sample keeps what it has.
        path: parquet file to write.

    Returns:
        Number of rows with a new difficulty.

    Raises:
        ConfigError: the file cannot be written.
    """
    solved: dict[int, list[bool]] = {}
    for record in records:
        if record.error is None:
            solved.setdefault(record.row, []).append(is_solved(record))
    written = []
    for number, row in enumerate(rows):
        samples = solved.get(number)
        more = {} if samples is None else {"difficulty": 1 - sum(samples) / len(samples)}
        written.append({**row, "extra_info": {**row["extra_info"], **more}})
    write_parquet(written, path)
    return len(solved)
