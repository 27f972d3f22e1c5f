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
        own = [name for name in dataframe.column_names if name not in SHAPE_COLUMNS]
        columns = list(dict.fromkeys([*own, *_MADE]))
        known_changes: set[str] = set()

        def read(batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
            """The same columns for every row; not a method, which `datasets` would copy with the whole data set."""
            rows = []
            for values in zip(*batch.values(), strict=True):
                row, changes = as_row(dict(zip(batch, values, strict=True)))
                if images := row.get("images"):
                    row["images"] = [_for_verl(image) for image in images]
                rows.append(self._converted(row))
                for change in {*changes} - known_changes:
                    known_changes.add(change)
                    logger.warning("rows are read in another shape: %s", change)
            return {name: [row.get(name) for row in rows] for name in columns}

        return super().maybe_filter_out_long_prompts(dataframe.with_transform(read))

    def _converted(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of the contract as the agent loops get it."""
        return row


def _for_verl(image: Any) -> Any:
    """Of bytes and path, the one that is there, under the key that verl reads."""
    if not isinstance(image, Mapping):
        return image
    kept = {key: value for key, value in image.items() if value is not None}
    return kept if "bytes" in kept or "path" not in kept else {"image": kept["path"]}
