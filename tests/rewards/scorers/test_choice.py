import numpy as np
import pytest

from agent_rl.rewards.scorers.choice import score_choice


@pytest.mark.parametrize("truth", ["B", 1, "Paris"])
def test_choices_may_be_an_array_as_in_a_parquet_file(truth: str | int) -> None:
    info = {"choices": np.array(["London", "Paris"])}
    assert score_choice("<answer>Paris</answer>", truth, info) == 1.0
    assert score_choice("<answer>London</answer>", truth, info) == 0.0
