"""A row of a data set, for tests that need any, or one with some columns of their own."""

from typing import Any

from agent_rl.data import make_row

__all__ = ["sum_row"]


def sum_row(number: int = 0, **columns: Any) -> dict[str, Any]:
    """A row that asks for `number + 1`, unless its columns say something else."""
    usual = {"question": f"{number}+1?", "data_source": "gsm8k", "ground_truth": number + 1, "split": "train"}
    return make_row(**{**usual, "index": number, **columns})
