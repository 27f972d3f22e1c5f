from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.backend import reward_model
from agent_rl.errors import ConfigError


def reward(*, enable: bool = True, pool: bool = False, manager: str = "naive", path: str | None = None) -> Any:
    return OmegaConf.create(
        {
            "reward_model": {"enable": enable, "enable_resource_pool": pool},
            "reward_manager": {"name": manager},
            "custom_reward_function": {"path": path},
        }
    )


@pytest.mark.parametrize(
    "fine",
    [
        reward(enable=False, manager="trajectory"),
        reward(),  # a classifier scores
        reward(pool=True, path="judge.py"),
        reward(pool=True, path="judge.py", manager="trajectory"),
        reward(path="judge.py", manager="mine"),
    ],
)
def test_what_verl_does_as_it_says_passes(fine: Any) -> None:
    reward_model.check(fine)


@pytest.mark.parametrize("pool", [False, True])
def test_our_reward_is_not_replaced_in_silence(pool: bool) -> None:
    with pytest.raises(ConfigError, match="never ask the reward manager 'trajectory'"):
        reward_model.check(reward(manager="trajectory", pool=pool))


def test_a_judge_that_would_get_no_ground_truth_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"reward\.reward_model\.enable_resource_pool: .* Set it to true"):
        reward_model.check(reward(path="judge.py"))
