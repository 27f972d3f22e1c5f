"""Which conditions of an exact turn gradient a configuration breaks."""

from typing import Any

import pytest

from agent_rl.launch.doctor.checks.reward import turn_credit
from agent_rl.preflight.check import Status
from tests.launch.doctor.conftest import MakeCase, only

ACTOR = "actor_rollout_ref.actor"
EXACT = {
    "algorithm.adv_estimator": "agent_rl_turn",
    f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm",
    f"{ACTOR}.loss_scale_factor": 512,
    f"{ACTOR}.use_kl_loss": False,
}


def test_a_configuration_without_a_bias(make_case: MakeCase) -> None:
    for keys in (EXACT, {"algorithm.adv_estimator": "rloo", "algorithm.gamma": 0.9}):
        assert only(turn_credit(make_case(keys))).status is Status.OK


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"agent_rl.reward.format": {"weight": 1, "normalize": "group"}}, "'format' compares the samples"),
        ({"algorithm.filter_groups.enable": True}, "chosen by their outcome"),
        ({"trainer.v1.sampler.sync_refill_failed_groups": True}, "replaced"),
        ({"algorithm.gamma": 0.9}, "discounted"),
        ({"trainer.v1.trainer_mode": "colocate_async"}, "older weights"),
        ({f"{ACTOR}.ppo_epochs": 2}, "2 updates"),
        ({f"{ACTOR}.loss_agg_mode": "token-mean"}, "the number of sampled tokens"),
        ({f"{ACTOR}.loss_scale_factor": None}, "the longest response"),
        ({"algorithm.rollout_correction.rollout_rs": "seq_mean_k1"}, "rollout_rs=seq_mean_k1"),
        ({"algorithm.rollout_correction.rollout_is": "token"}, "rollout_is=token"),
        ({f"{ACTOR}.use_kl_loss": True}, "KL term"),
        ({"agent_rl.mask_void": "turn"}, "agent_rl.mask_void=turn"),
        ({"agent_rl.mask_overlong": True}, "agent_rl.mask_overlong=True"),
    ],
)
def test_what_biases_the_gradient_is_a_warning(make_case: MakeCase, keys: dict[str, Any], text: str) -> None:
    found = only(turn_credit(make_case({**EXACT, **keys})))
    assert (found.status, found.remedy != "") == (Status.WARNING, True)
    assert text in found.text
