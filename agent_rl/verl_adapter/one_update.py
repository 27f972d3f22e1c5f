"""Leaves out the pass that computes the log-probs before an update, where the update itself computes the same ones.

The ratio of a policy loss compares the policy with what it was before the first update of a batch. In that first update
both are the same, so their log-probs are those of the update's own forward pass, without their gradient. A batch that
is used for one update only needs no others, unless something else reads them: a KL penalty in the reward, a correction
for the distance to the engine, or an estimator of the advantages.

What verl logs from that pass (the entropy, the engine's log-probs against the trainer's) is computed every
`agent_rl.run.log_probs_every` steps, by running it. `training/rollout_probs_diff_mean` and `_max` are in each step:
the update has what they need.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from agent_rl.verl_adapter.mini_batches import mini_batches

__all__ = ["needs_pass", "policy_loss", "rename_metrics"]

READERS = ("optimal_token_baseline", "tir_optimal_token_baseline")
"""verl's estimators that read the log-probs."""
DIFF = "training/rollout_probs_diff"


def needs_pass(trainer: Any) -> str:
    """What needs the log-probs before the update, in words; empty: the update's own are the same."""
    config = trainer.config
    actor, correction = config.actor_rollout_ref.actor, config.algorithm.get("rollout_correction") or {}
    reasons = {
        f"actor.ppo_epochs={actor.ppo_epochs}": actor.ppo_epochs > 1,
        "several mini-batches in a step": mini_batches(trainer, actor) > 1,
        "several updates before the engine gets the weights": trainer.parameter_sync_step > 1,
        "algorithm.rollout_correction": any(correction.get(key) for key in ("rollout_is", "rollout_rs", "bypass_mode")),
        "algorithm.use_kl_in_reward": config.algorithm.use_kl_in_reward,
        f"algorithm.adv_estimator={config.algorithm.adv_estimator}": config.algorithm.adv_estimator in READERS,
        "distillation": bool((config.get("distillation") or {}).get("enabled")),
        f"actor.strategy={actor.strategy}": actor.strategy not in ("fsdp", "fsdp2"),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def rename_metrics(metrics: dict[str, Any]) -> None:
    """Give what the update has measured itself the names of what verl measures in the pass."""
    for name in [name for name in metrics if name.startswith(f"actor/{DIFF}")]:
        metrics[name.removeprefix("actor/")] = metrics.pop(name)


def policy_loss(module: ModuleType) -> None:
    """`verl.workers.engine_workers`: a loss that takes its own log-probs for the old ones where there are none.

    Each call has one micro-batch: `model_output` with log-probs of every token, `data` with what the batch holds.
    """
    import torch
    from verl.utils.metric import AggregationType, Metric
    from verl.workers.utils.padding import no_padding_2_padding

    original = module.ppo_loss

    @functools.wraps(original)
    def ppo_loss(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        if "old_log_probs" in data:
            return original(config, model_output, data, dp_group)
        data = data.copy()
        log_probs_BT = no_padding_2_padding(model_output["log_probs"], data).detach()
        data["old_log_probs"] = log_probs_BT
        loss, metrics = original(config, model_output, data, dp_group)
        if "rollout_log_probs" in data:
            engines_BT, mask_BT = (data[name].to_padded_tensor(0) for name in ("rollout_log_probs", "response_mask"))
            diff_BT = (log_probs_BT.exp() - engines_BT.exp()).abs().where(mask_BT.bool(), torch.zeros(()))
            mean = diff_BT.sum() / data["batch_num_tokens"] * data["dp_size"]  # of all GPUs' micro-batches together
            metrics[f"{DIFF}_mean"] = Metric(AggregationType.SUM, mean)
            metrics[f"{DIFF}_max"] = Metric(AggregationType.MAX, diff_BT.max())
        return loss, metrics

    module.ppo_loss = ppo_loss  # type: ignore[attr-defined]
