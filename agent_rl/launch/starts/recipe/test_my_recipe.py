"""Tests of the recipe's rows and tools; run them with `pytest my_recipe`."""

import runpy
from pathlib import Path

from agent_rl.data import check_rows
from agent_rl.tools import load_tools

HERE = Path(__file__).parent
ROWS = runpy.run_path(str(HERE / "make_rows.py"))["rows"]


def test_the_rows_can_be_trained_on() -> None:
    train, test = ROWS("train", 50, 0), ROWS("test", 10, 1)
    check_rows([*train, *test], source="make_rows.py")
    questions = [str(row["prompt"]) for row in (*train, *test)]
    assert len(set(questions)) == len(questions)


def test_the_tools_can_be_loaded() -> None:
    assert [tool.name for tool in load_tools(HERE / "tools.yaml")] == ["calculator"]
