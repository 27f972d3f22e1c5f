"""MaxRL's advantages by hand."""

import pytest
import torch
from verl.trainer.ppo.core_algos import get_adv_estimator_fn

from agent_rl.verl_adapter.algorithms import maxrl


def test_differences_are_divided_by_the_mean_of_their_group() -> None:
    rewards = torch.tensor([[0.0, 1], [0, 0], [0, 0], [0, 0], [0, -1], [0, 0.5]])
    mask = torch.tensor([[1, 1], [0, 1], [1, 1], [1, 1], [1, 1], [1, 1]])
    advantages, _ = get_adv_estimator_fn(maxrl.ESTIMATOR)(
        token_level_rewards=rewards, response_mask=mask, index=["a", "a", "a", "a", "b", "b"], config=None
    )
    assert advantages[:, 1].tolist() == pytest.approx([3, -1, -1, -1, 0, 0])  # the mean of b is negative
    assert advantages[1, 0] == 0
