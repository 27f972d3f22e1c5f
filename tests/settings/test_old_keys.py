"""The mechanism of the table; `tests/launch/test_old_keys.py` has what old command lines and files become."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.settings import old_keys
from agent_rl.settings.old_keys import change_arguments, change_config


def test_a_key_in_both_spellings_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"custom_reward_function\.name: this key is now reward\.custom_reward_function\."
    ):
        change_arguments(["custom_reward_function.name=f", "reward.custom_reward_function.name=g"])
    with pytest.raises(ConfigError, match=r"num_generations: this key is now .*rollout\.n, which is also set"):
        change_arguments(["group_size=4", "num_generations=8"])


def test_an_old_key_after_todays_wins_as_any_later_override_does() -> None:
    changed, _ = change_arguments(["trainer.experiment_name=launchers", "run_name=users"])
    assert changed == ["trainer.experiment_name=launchers", "trainer.experiment_name=users"]


def test_every_row_is_well_formed() -> None:
    for row in old_keys.rows():
        assert row.kind in ("moved", "different", "gone", "unread"), row
        assert row.why, row
        assert "\n" not in row.why, row
        assert row.kind in ("moved", "unread") or row.new or row.write, f"nothing is said about what to write: {row}"
        assert row.command in (None, "train", "eval"), row


@pytest.mark.parametrize(
    ("in_loss", "in_reward", "coefficients"), [(True, False, (0.01, 0.2)), (False, True, (0.1, 0.01))]
)
def test_a_number_as_the_kl_penalty_is_the_coefficient_of_the_kl_in_force(
    in_loss: bool, in_reward: bool, coefficients: tuple[float, float]
) -> None:
    config = kl_config(in_loss, in_reward)
    (note,) = change_config(config, {"algorithm.kl_penalty"})
    actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
    assert (actor.kl_loss_coef, algorithm.kl_ctrl.kl_coef) == coefficients
    assert algorithm.kl_penalty == "kl"
    assert note.startswith("algorithm.kl_penalty=0.01 is ")


@pytest.mark.parametrize(("both", "remedy"), [(False, "Add kl=loss or kl=reward"), (True, "kl_ctrl.kl_coef=0.01")])
def test_a_number_as_the_kl_penalty_without_one_kl_is_refused(both: bool, remedy: str) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.kl_penalty: .*\(value 0\.01\)") as caught:
        change_config(kl_config(both, both))
    assert remedy in str(caught.value)


def kl_config(in_loss: bool, in_reward: bool) -> Any:
    return OmegaConf.create(
        {
            "actor_rollout_ref": {"actor": {"use_kl_loss": in_loss, "kl_loss_coef": 0.1}},
            "algorithm": {"use_kl_in_reward": in_reward, "kl_penalty": 0.01, "kl_ctrl": {"kl_coef": 0.2}},
        }
    )
