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

from agent_rl.settings import AgentRLSettings
from agent_rl.verl_adapter.mini_batches import mini_batches

__all__ = ["detached_log_probs", "leave_out_pass", "needs_pass"]

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


def leave_out_pass(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: run the pass where something needs it, and every so many steps."""
    trainer = module.PPOTrainer
    compute, update = trainer._compute_old_log_prob, trainer._update_actor
    correct = module.compute_rollout_correction_and_add_to_batch

    @functools.wraps(compute)
    def compute_or_leave_out(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        if not hasattr(self, "_agent_rl_log_probs_every"):
            every = AgentRLSettings.from_config(self.config).run.log_probs_every
            self._agent_rl_log_probs_every = 1 if needs_pass(self) else every
        if (self.global_steps - 1) % self._agent_rl_log_probs_every == 0:
            return compute(self, batch, metrics)
        return batch

    @functools.wraps(correct)
    def correct_if_there(batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Nothing corrects where the pass is left out, or no token is trained on, which verl refuses."""
        has_tokens = "old_log_probs" in batch.batch and bool(batch.batch["response_mask"].any())
        return correct(batch, *args, **kwargs) if has_tokens else (batch, {})

    @functools.wraps(update)
    def update_and_name(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        result = update(self, batch, metrics)
        for name in [name for name in metrics if name.startswith(f"actor/{DIFF}")]:
            metrics[name.removeprefix("actor/")] = metrics.pop(name)
        return result

    trainer._compute_old_log_prob, trainer._update_actor = compute_or_leave_out, update_and_name
    module.compute_rollout_correction_and_add_to_batch = correct_if_there  # type: ignore[attr-defined]


def detached_log_probs(module: ModuleType) -> None:
    """`verl.workers.engine_workers`: a policy loss that takes its own log-probs for the old ones, where there are none.

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
