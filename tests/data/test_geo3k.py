import io
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import geo3k, read_parquet, write_parquet
from agent_rl.errors import ConfigError


def picture() -> Any:
    image = pytest.importorskip("PIL.Image")
    return image.new("RGB", (3, 2), "red")


def test_a_figure_goes_into_the_file_and_comes_out_again(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    row = geo3k.to_row({"images": [picture()], "problem": "<image>Find x.", "answer": "3"}, "train", 0)
    write_parquet([row], tmp_path / "rows.parquet")
    (found,) = read_parquet(tmp_path / "rows.parquet")
    assert image.open(io.BytesIO(found["images"][0]["bytes"])).size == (3, 2)
    assert found["extra_info"]["question"] == "Find x."
    assert found["data_source"] == "hiyouga/geometry3k"


def test_a_problem_without_a_mark_gets_its_images_first() -> None:
    row = geo3k.to_row({"images": [b"a", b"b"], "problem": "Find x.", "answer": 3}, "train", 0)
    assert row["prompt"][0]["content"] == "<image><image>Find x."
    assert row["reward_model"]["ground_truth"] == "3"


def test_marks_and_images_have_to_agree() -> None:
    with pytest.raises(ConfigError, match="2 <image> for 1 images"):
        geo3k.to_row({"images": [b"a"], "problem": "<image><image>Find x.", "answer": "3"}, "train", 0)
