"""The function that the trainer and the certificates share."""

import numpy as np
import pytest
import torch
from verl import DataProto

from agent_rl.verl_adapter.algorithms.advantages import estimate

KEYS = ["a_0_0", "a_0_1", "a_1_0", "pad_0_0"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_trajectory_counts_once_in_the_precision_of_its_rewards(dtype: torch.dtype) -> None:
    rewards = torch.tensor([[0.0, 0.1], [0.0, 0.1], [0.0, 0.7], [0.0, 9.0]], dtype=dtype)
    mask = torch.tensor([[1, 1], [0, 1], [1, 1], [0, 0]])
    data = DataProto.from_dict(
        {"token_level_rewards": rewards, "response_mask": mask}, {"uid": np.array(["a", "a", "a", "pad"], dtype=object)}
    )
    advantages = estimate(data, KEYS, "rloo", config={}).batch["advantages"]
    assert advantages.dtype == dtype
    expected = torch.tensor([[-0.6, -0.6], [0.0, -0.6], [0.6, 0.6], [0.0, 0.0]], dtype=dtype)
    torch.testing.assert_close(advantages, expected)
