"""Data sets for verl's trainers: rows in their original form, and recorded episode tokens for the SFT trainer."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import datasets
import pyarrow.parquet as pq
import torch
from torch.utils.data import Dataset
from verl.utils.dataset.rl_dataset import RLHFDataset

from agent_rl.data.shapes import SHAPE_COLUMNS, as_row
from agent_rl.data.storage import PACKED
from agent_rl.errors import ConfigError

logger = logging.getLogger(__name__)

_MADE = ("prompt", "reward_model", "extra_info", "images", "videos")
"""Columns that `as_row` may add."""
_NUMBER = "agent_rl_number"
"""Column with the row's number, for rows without `extra_info.index`."""


class RowDataSet(RLHFDataset):
    """verl's `RLHFDataset` with rows in their original form; every recipe sets it as `data.custom_cls`.

    Stored rows (`agent_rl.data.storage`) are unpacked, and rows in other common shapes are converted to the expected
    format (`agent_rl.data.shapes`); each kind of change is logged once. All other behavior is as in verl.
    """

    def maybe_filter_out_long_prompts(self, dataframe: datasets.Dataset) -> datasets.Dataset:  # type: ignore[override]
        """Return the rows whose prompts are short enough; verl calls this after reading the files."""
        table = dataframe.data  # the table of all rows, even if `data.train_max_samples` selects only some
        empty = [name for name in dataframe.column_names if table.column(name).null_count == table.num_rows]
        dataframe = dataframe.remove_columns(empty)
        own = [name for name in dataframe.column_names if name not in SHAPE_COLUMNS]
        info = dataframe.features.get("extra_info")
        if not (isinstance(info, dict) and {"index", PACKED} & info.keys()):
            dataframe = dataframe.add_column(_NUMBER, list(range(len(dataframe))))
        columns = list(dict.fromkeys([*own, *_MADE]))
        known_changes: set[str] = set()

        def read(batch: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
            """Give every row the same columns; if this were a method, `datasets` would copy the whole data set."""
            rows = []
            for values in zip(*batch.values(), strict=True):
                raw = dict(zip(batch, values, strict=True))
                row, changes = as_row(raw, number=raw.pop(_NUMBER, 0))
                if images := row.get("images"):
                    row["images"] = [_for_verl(image) for image in images]
                rows.append(self._converted(row))
                for change in {*changes} - known_changes:
                    known_changes.add(change)
                    logger.warning("rows are converted to the expected format: %s", change)
            return {name: [row.get(name) for row in rows] for name in columns}

        return super().maybe_filter_out_long_prompts(dataframe.with_transform(read))

    def _converted(self, row: dict[str, Any]) -> dict[str, Any]:
        """Convert a row in the expected format to the form that agent loops get."""
        return row


def _for_verl(image: Any) -> Any:
    """Return the image's bytes or path under the key that verl reads."""
    if not isinstance(image, Mapping):
        return image
    fields = {key: value for key, value in image.items() if value is not None}
    return fields if "bytes" in fields or "path" not in fields else {"image": fields["path"]}


class EpisodeDataSet(Dataset[dict[str, torch.Tensor]]):
    """Training sequences with the columns `prompt_ids`, `response_ids` and `mask` (1 for a turn's tokens).

    verl's data set renders messages with the chat template; this class uses the tokens and the mask of the
    agent's conversation, so that supervised and reinforcement learning use the same tokens.

    Args:
        parquet_files: one file, or several.
        tokenizer: not used.
        config: verl's `data` section; only `max_length` is used.
        processor: not used.
        max_samples: maximum number of sequences to use; -1 means all.

    Raises:
        ConfigError: a sequence is longer than `data.max_length`.
    """

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        self._rows = rows if max_samples < 0 else rows[:max_samples]
        longest = max((len(row["prompt_ids"]) + len(row["response_ids"]) for row in self._rows), default=0)
        if longest > config.max_length:
            raise ConfigError(
                "data.max_length", f"it is {config.max_length}, but an episode has {longest} tokens", "Raise it"
            )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        """Return `input_ids`, `position_ids` and `loss_mask`, each as long as the sequence."""
        row = self._rows[number]
        ids = torch.tensor([*row["prompt_ids"], *row["response_ids"]])
        mask = torch.tensor([*([0] * len(row["prompt_ids"])), *row["mask"]])
        return {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": mask}
