"""`agent-rl data`: rows as the model sees them, and the check of files, as a user calls them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import arithmetic, iterate_rows, write_parquet
from agent_rl.errors import ConfigError
from tests.support.cli import invoke

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tool_configs/calculator.yaml"


@pytest.fixture
def files(here: Path) -> dict[str, list[dict[str, Any]]]:
    """`train.parquet` and `test.parquet` in the working directory, with two mistakes."""
    made = {
        split: [arithmetic.to_row(each, split, i) for i, each in enumerate(arithmetic.generate(seed, 12))]
        for seed, split in enumerate(("train", "test"))
    }
    made["train"][4]["agent_name"] = "raect_agent"
    made["test"][2]["prompt"] = made["train"][1]["prompt"]
    made["test"][2]["reward_model"] = made["train"][1]["reward_model"]
    for split, rows in made.items():
        write_parquet(rows, f"{split}.parquet")
    return made


def test_errors_are_listed_and_give_exit_status_1(files: dict[str, Any]) -> None:
    found = invoke("data", "check", "train.parquet", "test.parquet", "--tools", str(TOOLS))
    assert found.exit_code == 1
    assert "24 rows in 2 files" in found.stdout
    assert "error agent, 1 row: train.parquet, row 4: 'raect_agent' is not registered" in found.stdout
    assert (
        "error in two splits, 1 row: test.parquet, row 2: train.parquet, row 1 asks the same question" in found.stdout
    )


def test_good_rows_are_written_and_pass(files: dict[str, Any]) -> None:
    fixed = invoke("data", "check", "train.parquet", "test.parquet", "--fix", "good.parquet", "--json")
    report = json.loads(fixed.stdout)
    assert report["fixed"] == {"good": {"good.parquet": 22}, "rejected": {"good.rejected.jsonl": 2}}
    assert {finding["kind"]: finding["rows"] for finding in report["findings"]} == {"agent": 1, "in two splits": 1}
    good = [found.row for found in iterate_rows("good.parquet")]
    bad = [files["train"][4], files["test"][2]]
    assert good == [row for row in (*files["train"], *files["test"]) if row not in bad]
    rejected = [json.loads(line) for line in Path("good.rejected.jsonl").read_text().splitlines()]
    assert [(each["file"], each["row"]) for each in rejected] == [("train.parquet", 4), ("test.parquet", 2)]
    assert invoke("data", "check", "good.parquet", "--all").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.parquet", "train.parquet"], "train.parquet: the file was passed twice"),
        (["train.parquet", "--fix", "train.parquet"], "--fix: train.parquet is one of the files"),
        (["train.parquet", "HERE/train.parquet"], "train.parquet: the file was passed twice"),
        (["train.parquet", "--fix", "HERE/train.parquet"], "--fix: .*/train.parquet is one of the files"),
        (["train.parquet", "--model", "/no/such"], "--model: there is no tokenizer in '/no/such'"),
        (["train.parquet", "--set", "agent_rl.rewrad.x=1"], "agent_rl.rewrad"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(files: dict[str, Any], words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        invoke("data", "check", *(word.replace("HERE", os.getcwd()) for word in words))


def test_a_row_is_shown_with_the_agents_instructions(files: dict[str, Any]) -> None:
    model = str(ROOT / "recipes/quickstart/model")
    found = invoke("data", "show", "train.parquet", "--row", "3", "-n", "2", "--model", model, "--tools", str(TOOLS))
    assert found.exit_code == 0
    for row in files["train"][3:5]:
        assert row["prompt"][0]["content"] in found.stdout
    assert "train.parquet, row 3 " in found.stdout
    assert "calculator: Evaluate an arithmetic expression" in found.stdout
    assert "<|im_start|>user" in found.stdout
    assert "tokens:" in found.stdout
    without_model = invoke("data", "show", "train.parquet", "--tools", str(TOOLS)).stdout
    assert "[system]\nAnswer the question." in without_model
    assert "calculator: Evaluate an arithmetic expression" in without_model
    with pytest.raises(ConfigError, match=r"--row: train\.parquet has no row 12"):
        invoke("data", "show", "train.parquet", "--row", "12")


def test_the_script_does_the_same(files: dict[str, Any]) -> None:
    command = [sys.executable, str(ROOT / "data_preprocess/check_data.py"), "train.parquet"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "error agent, 1 row" in found.stdout
