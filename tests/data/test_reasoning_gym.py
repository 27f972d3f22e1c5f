"""Problems of reasoning-gym: the same each time, and judged by their own verifier."""

from pathlib import Path

import pytest

from agent_rl.data import read_parquet
from agent_rl.data.conversion import run
from agent_rl.data.reasoning_gym import REASONING_GYM
from agent_rl.rewards.routing import route
from agent_rl.rewards.scorers import score_now

pytestmark = pytest.mark.slow

SIZES = ["--train_size", "6", "--test_size", "3"]


def generated(folder: Path, name: str, *arguments: str) -> dict[str, list[dict[str, object]]]:
    run(REASONING_GYM, None, ["--generator", name, *SIZES, "--local_save_dir", str(folder / name), *arguments])
    return {split: read_parquet(folder / name / f"{split}.parquet") for split in ("train", "test")}


@pytest.mark.parametrize("name", ["leg_counting", "countdown"])
def test_a_generators_rows_are_judged_by_its_verifier(tmp_path: Path, name: str) -> None:
    pytest.importorskip("reasoning_gym")
    rows = generated(tmp_path, name)
    assert {split: len(each) for split, each in rows.items()} == {"train": 6, "test": 3}
    assert rows == generated(tmp_path, name)
    assert rows != generated(tmp_path, name, "--seed", "1")
    for row in rows["train"]:
        truth, info = row["reward_model"]["ground_truth"], row["extra_info"]
        scorer = route(str(row["data_source"]))
        assert score_now(scorer, f"<answer>{truth}</answer>", truth, info) == 1.0
        assert score_now(scorer, "<answer>no</answer>", truth, info) < 1.0


def test_a_generator_that_does_not_exist_gets_the_nearest_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("reasoning_gym")
    with pytest.raises(SystemExit):
        generated(tmp_path, "leg_countin")
    assert "'leg_counting'" in capsys.readouterr().err
