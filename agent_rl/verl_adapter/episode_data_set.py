"""`EpisodeDataSet`: recorded tokens of episodes as verl's SFT trainer reads them.

verl's own data set renders messages with the chat template; here the tokens and the mask are those that the agent's
conversation had, so that supervised and reinforcement learning see the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from agent_rl.errors import ConfigError

__all__ = ["EpisodeDataSet"]


class EpisodeDataSet(Dataset[dict[str, torch.Tensor]]):
    """Training sequences with the columns `prompt_ids`, `response_ids` and `mask` (1 for a turn's tokens).

    Args:
        parquet_files: one file, or several.
        tokenizer: not used.
        config: verl's section `data`, of which `max_length` counts.
        processor: not used.
        max_samples: of the first sequences; -1: all.

    Raises:
        ConfigError: a sequence is longer than `data.max_length`.
    """

    def __init__(
        self, parquet_files: Any, tokenizer: Any, config: Any, processor: Any = None, max_samples: int = -1
    ) -> None:
        import pyarrow.parquet as pq

        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = [row for file in files for row in pq.read_table(file).to_pylist()]
        self._rows = rows if max_samples < 0 else rows[:max_samples]
        longest = max((len(row["prompt_ids"]) + len(row["response_ids"]) for row in self._rows), default=0)
        if longest > config.max_length:
            raise ConfigError(
                "data.max_length", f"{config.max_length}, but an episode has {longest} tokens", "Raise it"
            )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        """`input_ids`, `position_ids` and `loss_mask`, each of the sequence's length."""
        row = self._rows[number]
        ids = torch.tensor([*row["prompt_ids"], *row["response_ids"]])
        mask = torch.tensor([*([0] * len(row["prompt_ids"])), *row["mask"]])
        return {"input_ids": ids, "position_ids": torch.arange(len(ids)), "loss_mask": mask}
