"""Rows of any kind, in one run: what verl's workers get of each is what was made."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.data import write_parquet
from tests.support.rows import sum_row


@pytest.fixture
def data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenizer: Any) -> Any:
    """Makes our data set over files, with its caches in a folder of the test."""
    import datasets

    from agent_rl.verl_adapter.row_data_set import RowDataSet

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def make(*paths: Path, max_samples: int = -1, **config: Any) -> RowDataSet:
        given = {"cache_dir": str(tmp_path / "verl"), "filter_overlong_prompts_workers": None, **config}
        return RowDataSet([str(path) for path in paths], tokenizer, OmegaConf.create(given), max_samples=max_samples)

    return make


ROWS = [
    sum_row(
        index="q-1",
        data_source="nq",
        ground_truth=["a", "b"],
        tools_kwargs={"search": {"create_kwargs": {"index": "wiki", "filter": None}}},
        tool_selection=["search"],
        extra_info={"level": "hard"},
    ),
    sum_row(1, extra_info={"level": 3, "user": {"replies": ["yes"]}}),
    sum_row(2, ground_truth={"type": "object"}, tools_kwargs={"python": {"create_kwargs": {"files": {"a.txt": "a"}}}}),
]
TYPED = {
    "data_source": "gsm8k",
    "agent_name": "react_agent",
    "prompt": [{"role": "user", "content": "d?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"index": "7", "level": 2, "split": "train"},
}
"""As verl's own scripts write rows, in JSON."""


@pytest.mark.parametrize("filtered", [False, True])
def test_rows_of_different_sets_join_and_arrive_as_they_were_made(
    tmp_path: Path, data_set: Any, filtered: bool
) -> None:
    from verl.utils.dataset.rl_dataset import collate_fn

    write_parquet(ROWS[:2], tmp_path / "one.parquet")
    write_parquet(ROWS[2:], tmp_path / "two.parquet")
    (tmp_path / "three.jsonl").write_text(json.dumps(TYPED))
    paths = [tmp_path / name for name in ("one.parquet", "two.parquet", "three.jsonl")]
    found = data_set(*paths, filter_overlong_prompts=filtered)
    assert len(found) == 4
    items = [found[number] for number in range(4)]
    for item, row in zip(items, [*ROWS, TYPED], strict=True):
        assert item["raw_prompt"] == row["prompt"]
        assert item["index"] == row["extra_info"]["index"]
        assert item["tools_kwargs"] == row["extra_info"].get("tools_kwargs", {})
        assert {name: item[name] for name in row} == row
    assert {len(column) for column in collate_fn(items).values()} == {4}
    assert len(data_set(*paths, max_prompt_length=1, filter_overlong_prompts=True)) == 0


@pytest.mark.parametrize("max_samples", [-1, 2])
def test_rows_without_an_agent_leave_it_to_the_run(tmp_path: Path, data_set: Any, max_samples: int) -> None:
    write_parquet([{**row, "agent_name": None} for row in ROWS], tmp_path / "rows.parquet")
    found = data_set(tmp_path / "rows.parquet", max_samples=max_samples)
    assert "agent_name" not in found[0]


def test_rows_in_shapes_of_guides_are_read_and_each_change_is_said_once(
    tmp_path: Path, data_set: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [{"prompts": f"{number}?", "ground_truth": number, "data_source": "gsm8k"} for number in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = data_set(tmp_path / "rows.jsonl", filter_overlong_prompts=False)
    items = [found[number] for number in range(3)]
    assert [item["raw_prompt"][0]["content"] for item in items] == ["0?", "1?", "2?"]
    assert [item["reward_model"] for item in items] == [{"ground_truth": str(number)} for number in range(3)]
    assert [item["index"] for item in items] == [0, 1, 2]
    assert [record.getMessage() for record in caplog.records if "prompts is read" in record.getMessage()] == [
        "rows are converted to the expected format: prompts is read as prompt"
    ]
    assert [item["index"] for item in items] == [0, 1, 2]
    some = data_set(tmp_path / "rows.jsonl", max_samples=2, shuffle=True, seed=1, filter_overlong_prompts=False)
    for item in (some[0], some[1]):  # the numbers are those of the rows in the file
        assert item["raw_prompt"][0]["content"] == f"{item['index']}?"
