"""Problems of reasoning-gym: the same each time, and judged by their own verifier."""

from typing import Any

import pytest

from agent_rl.data.reasoning_gym import REASONING_GYM
from agent_rl.rewards.routing import route
from agent_rl.rewards.scorers import score_now

pytestmark = pytest.mark.slow

SIZES = ["--train_size", "6", "--test_size", "3"]


@pytest.mark.parametrize("name", ["leg_counting", "countdown"])
def test_a_generators_rows_are_judged_by_its_verifier(convert: Any, name: str) -> None:
    pytest.importorskip("reasoning_gym")
    command = (REASONING_GYM, "--generator", name, *SIZES)
    rows = convert(*command)
    assert {split: len(each) for split, each in rows.items()} == {"train": 6, "test": 3}
    assert rows == convert(*command)
    assert rows != convert(*command, "--seed", "1")
    for row in rows["train"]:
        truth, info = row["reward_model"]["ground_truth"], row["extra_info"]
        scorer = route(str(row["data_source"]))
        assert score_now(scorer, f"<answer>{truth}</answer>", truth, info) == 1.0
        assert score_now(scorer, "<answer>no</answer>", truth, info) < 1.0


@pytest.mark.parametrize("name", ["chain_sum", "coin_flip"])  # the second has only about a hundred questions
def test_no_question_is_in_both_splits(convert: Any, name: str) -> None:
    pytest.importorskip("reasoning_gym")
    rows = convert(REASONING_GYM, "--generator", name, "--train_size", "300", "--test_size", "50")
    train, test = ([row["extra_info"]["question"] for row in rows[split]] for split in ("train", "test"))
    assert len(test) == 50
    assert len(train) == 300 or name == "coin_flip"
    assert not set(train) & set(test)


def test_a_split_may_be_left_out(convert: Any) -> None:
    pytest.importorskip("reasoning_gym")
    assert len(convert(REASONING_GYM, "--generator", "chain_sum", "--train_size", "0", "--test_size", "3")["test"]) == 3


def test_a_generator_that_does_not_exist_gets_the_nearest_name(refusal: Any) -> None:
    pytest.importorskip("reasoning_gym")
    assert "'leg_counting'" in refusal(REASONING_GYM, "--generator", "leg_countin", *SIZES)
