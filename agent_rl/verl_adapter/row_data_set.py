"""`RowDataSet`: verl's data set, with rows as they were made: `data.custom_cls` of every recipe.

Stored rows (`agent_rl.data.storage`) are unpacked, and rows in the shapes that guides show become rows of the contract
(`agent_rl.data.shapes`), each kind of change logged once. All else is verl's own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from datasets import Dataset
from verl.utils.dataset.rl_dataset import RLHFDataset

from agent_rl.data.shapes import SHAPE_COLUMNS, as_row

__all__ = ["RowDataSet"]

logger = logging.getLogger(__name__)

_MADE = ("prompt", "reward_model", "extra_info", "images", "videos")
"""Columns that `as_row` may add."""


class RowDataSet(RLHFDataset):
    """verl's `RLHFDataset` over rows of the contract, or of a shape that `agent_rl.data.as_row` reads."""

    def maybe_filter_out_long_prompts(self, dataframe: Dataset) -> Dataset:  # type: ignore[override]
        """The rows whose prompts are short enough; called by verl once the files are read."""
        empty = [name for name in dataframe.column_names if dataframe.data.column(name).null_count == len(dataframe)]
        dataframe = dataframe.remove_columns(empty)
        columns = [name for name in dataframe.column_names if name not in SHAPE_COLUMNS]
        return super().maybe_filter_out_long_prompts(dataframe.with_transform(_Reading(columns)))


class _Reading:
    """Makes a batch of columns, as stored, into one with the same columns for every row."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = list(dict.fromkeys([*columns, *_MADE]))
        self._said: set[str] = set()

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {name: [] for name in self._columns}
        for values in zip(*batch.values(), strict=True):
            row, changes = as_row(dict(zip(batch, values, strict=True)))
            if images := row.get("images"):
                row["images"] = [_for_verl(image) for image in images]
            for name, column in found.items():
                column.append(row.get(name))
            for change in {*changes} - self._said:
                self._said.add(change)
                logger.warning("rows are read in another shape: %s", change)
        return found


def _for_verl(image: Any) -> Any:
    """Of bytes and path, the one that is there, under the key that verl reads."""
    if not isinstance(image, Mapping):
        return image
    kept = {key: value for key, value in image.items() if value is not None}
    return kept if "bytes" in kept or "path" not in kept else {"image": kept["path"]}
