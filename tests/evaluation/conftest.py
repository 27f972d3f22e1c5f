from pathlib import Path

import pytest

from agent_rl.data import make_row, write_parquet
from tests.agents.policies.conftest import model_dir

__all__ = ["model_dir"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data(tmp_path):
    """Twelve sums of two data sources."""
    rows = []
    for number in range(12):
        a, b = 10 + 7 * number, 100 + 13 * number
        source = "gsm8k_even" if number % 2 == 0 else "gsm8k_odd"
        rows.append(
            make_row(question=f"What is {a}+{b}?", data_source=source, ground_truth=a + b, split="test", index=number)
        )
    path = tmp_path / "rows.parquet"
    write_parquet(rows, path)
    return str(path)


@pytest.fixture
def tools():
    return str(ROOT / "tool_configs/calculator.yaml")
