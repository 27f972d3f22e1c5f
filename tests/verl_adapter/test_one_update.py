"""The log-probs of the update itself do for the old ones, and the pass that computes these is left out then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.verl_adapter.one_update import needs_pass
from tests.forks import python

LOSS = """
import verl, torch
from verl.utils import tensordict_utils as tu
from verl.workers import engine_workers
from verl.workers.config import ActorConfig, PolicyLossConfig

torch.manual_seed(0)
PROMPTS, RESPONSES = [3, 2, 4], [5, 1, 3]

def nested(lengths, make):
    return torch.nested.as_nested_tensor([make(length) for length in lengths], layout=torch.jagged)

whole = [p + r for p, r in zip(PROMPTS, RESPONSES)]
parameters = torch.randn(sum(whole), requires_grad=True)
masks = nested(RESPONSES, lambda length: torch.arange(length) != 2)
fields = {
    "prompts": nested(PROMPTS, lambda length: torch.zeros(length, dtype=torch.long)),
    "responses": nested(RESPONSES, lambda length: torch.zeros(length, dtype=torch.long)),
    "response_mask": masks,
    "advantages": nested(RESPONSES, lambda length: torch.randn(1).expand(length)),
    "rollout_log_probs": nested(RESPONSES, lambda length: -torch.rand(length)),
}
numbers = {"dp_size": 1, "batch_num_tokens": int(masks.values().sum()), "global_batch_size": 3}

def loss(given, **settings):
    log_probs = torch.nested.nested_tensor_from_jagged(-parameters.exp(), torch.tensor([0, *whole]).cumsum(0))
    config = ActorConfig(strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, **settings)
    data = tu.get_tensordict(dict(fields), numbers)
    if given:
        from verl.workers.utils.padding import response_from_nested
        data["old_log_probs"] = response_from_nested(log_probs.detach(), masks)
    value, metrics = engine_workers.ppo_loss(config=config, model_output={"log_probs": log_probs}, data=data)
    return value, torch.autograd.grad(value, parameters)[0], metrics, log_probs
"""


def test_losses_and_gradients_equal_those_with_log_probs_from_before_the_update() -> None:
    code = """
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
tried = []
for mode in sorted(set(POLICY_LOSS_REGISTRY) - {"bypass_mode"}):  # which reads the engine's
    for aggregate in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"):
        settings = {"policy_loss": PolicyLossConfig(loss_mode=mode, dro_beta=0.1), "loss_agg_mode": aggregate}
        one, other = (loss(given, **settings) for given in (True, False))
        torch.testing.assert_close(one[0], other[0], rtol=0, atol=0)
        torch.testing.assert_close(one[1], other[1], rtol=0, atol=0)
        assert other[1].abs().sum() > 0, mode
    tried.append(mode)
assert {"vanilla", "gspo", "cispo"} <= set(tried), tried
value, _, metrics, log_probs = loss(False)
rows = [row[-n - 1 : -1].exp() for row, n in zip(log_probs.unbind(), RESPONSES)]
diffs = torch.cat([(row - engine.exp()).abs() for row, engine in zip(rows, fields["rollout_log_probs"].unbind())])
diffs = diffs[masks.values()]
found = [metrics[f"training/rollout_probs_diff_{name}"].aggregate() for name in ("mean", "max")]
torch.testing.assert_close(torch.tensor(found).float(), torch.stack([diffs.mean(), diffs.max()]).detach())
print(len(tried) > 8, "training/rollout_probs_diff_mean" in loss(True)[2])
"""
    assert python(LOSS + code) == "True False"


def test_verls_own_loss_would_need_old_log_probs() -> None:
    assert python(LOSS + "\ntry: loss(False)\nexcept KeyError: print('needed')", plugins="none") == "needed"


def reason(sync_step: int = 1, **changed: Any) -> str:
    """Why a run needs the pass."""
    config = OmegaConf.create(
        {
            "data": {"train_batch_size": 16},
            "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": 16, "ppo_epochs": 1, "strategy": "fsdp2"}},
            "algorithm": {
                "adv_estimator": "grpo",
                "use_kl_in_reward": False,
                "rollout_correction": {"rollout_is": None, "rollout_rs": None, "bypass_mode": False},
            },
            "distillation": {"enabled": False},
        }
    )
    for key, value in changed.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    return needs_pass(SimpleNamespace(config=config, parameter_sync_step=sync_step))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 8}, "several mini-batches"),
        ({"actor_rollout_ref__actor__ppo_epochs": 2}, "ppo_epochs=2"),
        ({"algorithm__rollout_correction__rollout_is": "token"}, "rollout_correction"),
        ({"algorithm__rollout_correction__bypass_mode": True}, "rollout_correction"),
        ({"algorithm__use_kl_in_reward": True}, "use_kl_in_reward"),
        ({"algorithm__adv_estimator": "optimal_token_baseline"}, "adv_estimator"),
        ({"actor_rollout_ref__actor__strategy": "megatron"}, "strategy"),
        ({"distillation__enabled": True}, "distillation"),
        ({"sync_step": 2}, "several updates before"),
    ],
)
def test_what_reads_the_log_probs_gets_them(changed: dict[str, Any], said: str) -> None:
    assert said in reason(**changed)
    assert reason() == reason(actor_rollout_ref__actor__ppo_mini_batch_size=20) == ""


STEPS = """
import verl
from types import SimpleNamespace
from tests.verl_adapter.trainers import make

def run(steps, every, **changed):
    passes = []
    class Stop(Exception): pass
    def compute(batch):
        passes.append(trainer.global_steps)
        raise Stop
    sizes = {"data.train_batch_size": 4, "actor_rollout_ref.actor.ppo_mini_batch_size": 4}
    config = {**sizes, "agent_rl.run.log_probs_every": every, **changed}
    trainer = make(config=config, actor_rollout_wg=SimpleNamespace(compute_log_prob=compute))
    for trainer.global_steps in range(1, steps + 1):
        try: trainer._compute_old_log_prob(SimpleNamespace(extra_info={}), {})
        except Stop: pass
    return passes
"""


def test_the_pass_runs_in_the_first_step_and_every_so_many_and_would_in_each_with_verl() -> None:
    code = "print(run(9, 4), run(3, 1), run(3, 4, **{'algorithm.use_kl_in_reward': True}))"
    assert python(STEPS + code) == "[1, 5, 9] [1, 2, 3] [1, 2, 3]"
    assert python(STEPS + "print(run(3, 4))", plugins="none") == "[1, 2, 3]"
