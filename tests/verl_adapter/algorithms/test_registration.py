"""What verl finds under the names of our estimators, and what it does not replace."""

from typing import Any

import pytest
import torch
from verl.trainer.ppo import core_algos

from agent_rl.errors import ConfigError
from agent_rl.verl_adapter.algorithms import gigpo, turn

REWARDS = torch.tensor([[0.0, 0, 3], [1.0, 0, 0]])
MASK = torch.tensor([[1, 0, 1], [1, 0, 0]])


def test_verl_finds_the_estimators_of_turns_with_a_trajectory_in_each_row() -> None:
    values: dict[str, Any] = {"token_level_rewards": REWARDS, "response_mask": MASK, "index": ["p", "p"]}
    advantages, returns = core_algos.get_adv_estimator_fn(turn.ESTIMATOR)(**values, config=None)
    assert advantages.tolist() == returns.tolist() == [[2, 0, 3], [-2, 0, 0]]
    advantages, _ = core_algos.get_adv_estimator_fn(gigpo.ESTIMATOR)(**values, config=None)
    assert advantages[:, 0].tolist() == pytest.approx([0.5**0.5, -(0.5**0.5)], abs=1e-5)


def mine(*_: object, **__: object) -> None: ...


def test_a_policy_loss_that_exists_is_not_replaced() -> None:
    with pytest.raises(ConfigError, match=r"mine would replace verl\.trainer\.ppo\.core_algos's 'sapo'"):
        core_algos.register_policy_loss("sapo")(mine)
    try:
        assert core_algos.register_policy_loss("agent_rl_test")(mine) is mine
        assert core_algos.register_policy_loss("agent_rl_test")(mine) is mine  # its module was loaded again
        assert core_algos.get_policy_loss_fn("agent_rl_test") is mine
    finally:
        core_algos.POLICY_LOSS_REGISTRY.pop("agent_rl_test", None)
