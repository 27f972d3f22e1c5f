from typing import Any

import numpy as np
import pytest

from agent_rl.rewards.scorers.qa import (
    normalize_answer,
    read_targets,
    score_qa,
)


def test_normalisation_is_that_of_squad() -> None:
    assert normalize_answer("  The U.S.   Open,\nan Event ") == "us open event"


@pytest.mark.parametrize(
    "truth",
    [
        "Paris",
        ["Rome", "Paris"],
        {"target": ["Paris"]},
        {"target": "Paris"},
        {"target": np.array(["Paris"], dtype=object)},
    ],
)
def test_every_form_of_ground_truth_is_read(truth: Any) -> None:
    assert score_qa("the paris", truth, {}) == 1.0
    assert score_qa("london", truth, {}) == 0.0


def test_numbers_are_targets_too() -> None:
    assert read_targets([1990, 2.5]) == ["1990", "2.5"]
