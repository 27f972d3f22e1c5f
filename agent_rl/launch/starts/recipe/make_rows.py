"""Makes the rows of `my_recipe`: python my_recipe/make_rows.py."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from agent_rl.data import make_row, write_parquet

HERE = Path(__file__).parent


def rows(split: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Return rows with sums that are too long to guess. The scorer compares the answer with `ground_truth`."""
    draw = random.Random(seed)
    made = []
    for index in range(count):
        a, b, c = (draw.randint(11, 99) for _ in range(3))
        question = f"How much is {a} * {b} + {c}?"
        made.append(
            make_row(question=question, data_source="my_recipe", ground_truth=a * b + c, split=split, index=index)
        )
    return made


if __name__ == "__main__":
    write_parquet(rows("train", 512, seed=0), HERE / "train.parquet")
    write_parquet(rows("test", 64, seed=1), HERE / "test.parquet")
