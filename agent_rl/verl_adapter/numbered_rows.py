"""verl's data set of training rows, with the rows' numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from agent_rl.data.row_table import RowFacts, difficulty_of
from agent_rl.data.storage import unpacked
from agent_rl.errors import ConfigError
from agent_rl.settings import DataSettings

if TYPE_CHECKING:
    import datasets
    import pyarrow as pa

__all__ = ["ROW", "NumberedRows", "read_frame", "rows_of"]

ROW = "agent_rl_row"
"""Column with the row's number in the order of the files."""
COMPARED = 1_000
"""Prompts, evenly spread over the files, by which a checkpoint's rows are recognized."""


class NumberedRows:
    """verl's data set of training rows, of which each item carries its row's number.

    Args:
        dataset: an `RLHFDataset`, also a subclass of the user.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self._dataset[row], ROW: row}


def rows_of(dataset: Any, settings: DataSettings) -> RowFacts:
    """What the order needs to know of verl's data set.

    Raises:
        ConfigError: the data set is not verl's, or has no column `data_source`.
    """
    frame = getattr(dataset, "dataframe", None)
    columns = getattr(frame, "column_names", None)
    if frame is None or columns is None:
        problem = f"{type(dataset).__name__} has no table of rows, which agent_rl.data orders"
        raise ConfigError("data.custom_cls", problem, "Derive it from RLHFDataset, or remove the section agent_rl.data")
    if "data_source" not in columns:
        raise ConfigError(
            "data.train_files", "there is no column data_source", "Build rows with agent_rl.data.make_row"
        )
    sources = _column(frame, "data_source").to_pylist()
    difficulties: list[float | None] = [None] * len(sources)
    if settings.order == "difficulty" or any(stage.difficulty for stage in settings.stages):
        infos = _column(frame, "extra_info").to_pylist() if "extra_info" in columns else difficulties
        rows = zip(infos, sources, strict=True)
        difficulties = [difficulty_of(unpacked({"extra_info": info, "data_source": name})) for info, name in rows]
    some = np.linspace(0, len(sources) - 1, min(len(sources), COMPARED), dtype=np.int64)
    name = next(name for name in (dataset.prompt_key, *columns) if name in columns)
    prompts = _column(frame.select(some), name).to_pylist()
    digest = hashlib.blake2b(json.dumps([sources, prompts], default=str).encode(), digest_size=16).hexdigest()
    names = [str(path) for path in dataset.original_data_files]
    by_file = any(isinstance(each, list) for each in (settings.weights, *(s.weights for s in settings.stages)))
    files = [
        (name, sorted(read_frame([path]).unique("data_source")) if by_file else [])
        for name, path in zip(names, dataset.data_files, strict=True)
    ]
    return RowFacts(sources, difficulties, files, digest)


def read_frame(paths: Iterable[str]) -> datasets.Dataset:
    """The rows of files, as verl reads them."""
    import datasets

    def read(path: str) -> datasets.Dataset:
        kind = "parquet" if path.endswith(".parquet") else "json"
        return datasets.load_dataset(kind, data_files=path)["train"]

    return datasets.concatenate_datasets([read(path) for path in paths])


def _column(frame: Any, name: str) -> pa.ChunkedArray:
    """A column of a `datasets.Dataset`, as it is stored."""
    found: pa.ChunkedArray = frame.select_columns([name]).with_format("arrow")[:].column(name)
    return found
