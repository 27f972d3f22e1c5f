"""Controls the updates that verl makes from a batch: their number of mini-batches, and their old log-probs.

**Mini-batches.** A batch has a row for each training sequence, and an agent that folds its history has several rows per
trajectory. verl pads such a batch with rows that have no loss, until all mini-batches of `ppo_mini_batch_size` prompts
are full. The last mini-batch can consist mostly of padding rows, yet still makes a full-size step. With agent_rl, a
batch has one mini-batch for every `ppo_mini_batch_size` prompts; all mini-batches have the same number of rows, and the
batch is padded until its rows can be divided among mini-batches and GPUs. A loss that averages over rows is divided by
the number of rows. A loss that sums tokens (`seq-mean-token-sum`, `seq-mean-token-sum-norm`) is divided by a constant,
the number of prompts times `rollout.n`: failures and folding change the number of rows, which would scale the gradient.

**Log-probs.** A policy loss compares the policy with its state before the first update of a batch. In the first
update, the two are equal, so the update's forward pass supplies the old log-probs, without their gradient. A batch used
for one update needs no separate log-prob pass, unless a KL penalty in the reward, a correction of the mismatch with the
engine, or an estimator reads the log-probs. The metrics of the pass (such as the entropy) are available every
`agent_rl.run.log_probs_every` steps, when the pass runs. `training/rollout_probs_diff_mean` and `_max` are logged in
each step, because the update computes their inputs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

READERS = ("optimal_token_baseline", "tir_optimal_token_baseline")
"""verl's estimators that read the old log-probs and the squared probabilities from the log-prob pass."""
TOKEN_SUMS = ("seq-mean-token-sum", "seq-mean-token-sum-norm")
"""Values of `loss_agg_mode` whose divisor must be a constant."""
DIFF = "training/rollout_probs_diff"


def trained_keys(batch: Any) -> list[str]:
    """Return the keys of a batch, without those of its padding rows."""
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


def mini_batches(trainer: Any, part: Any) -> int:
    """Return the number of mini-batches; `part` is the configuration of the actor or of the critic."""
    return max(1, math.ceil(_prompts(trainer) / int(part.ppo_mini_batch_size)))


def _prompts(trainer: Any) -> int:
    """Return the number of prompts per update."""
    return int(trainer.config.data.train_batch_size // trainer.parameter_sync_step)


def required_multiple(trainer: Any, dp_size: int) -> int:
    """Return the number that must divide the number of rows of a padded batch."""
    config = trainer.config
    policy = config.actor_rollout_ref
    parts = [_rows_of_one_gpu(trainer, policy.actor)]
    if trainer.use_critic:
        parts.append(_rows_of_one_gpu(trainer, config.critic))
    for section in (policy.rollout, policy.ref):  # the rollout and reference passes do not split a batch
        if not section.log_prob_use_dynamic_bsz:
            parts.append(section.log_prob_micro_batch_size_per_gpu or 1)
    return dp_size * math.lcm(*parts)


def balance(trainer: Any, batch: Any, metrics: dict[str, Any], prefix: str) -> Any:
    """Pad a batch, and order its rows so that each GPU gets about the same work, as verl's `_balance_batch` does.

    verl compares and adds tensor elements, which keeps the GPUs waiting for 0.25 ms per row; a list takes 0.02 ms.
    """
    import torch
    from verl.trainer.ppo.v1 import trainer_base

    workers = trainer.actor_rollout_wg
    if "actor" not in workers._dispatch_info:
        workers._dispatch_info["actor"] = workers._query_dispatch_info("actor")
    gpus = max(workers._dispatch_info["actor"]) + 1
    multiple = trainer._get_required_batch_multiple(gpus)
    batch = trainer_base.upsample_batch_to_divisible_size(batch, multiple, trainer.tokenizer.eos_token_id)
    lengths = [tag["seq_len"] for tag in batch.tags]
    work = trainer_base.calculate_workload(torch.tensor(lengths)).tolist()
    parts = trainer_base.get_seqlen_balanced_partitions(work, k_partitions=gpus, equal_size=True)
    batch.reorder([row for part in parts for row in part])
    metrics.update(trainer_base.log_seqlen_unbalance(lengths, partitions=parts, prefix=prefix))
    return batch


@contextmanager
def evenly_split(trainer: Any, batch: Any, part: Any, group: str, method: str) -> Iterator[None]:
    """Within this block, pass the trainer's workers the number of mini-batches instead of the mini-batch size.

    Args:
        trainer: verl's trainer.
        batch: the batch of the update.
        part: the configuration of the actor or of the critic.
        group: the name of the trainer's attribute that contains the workers.
        method: the name of the workers' method that makes the update.
    """
    number, workers = mini_batches(trainer, part), getattr(trainer, group)
    rows = len(trained_keys(batch))
    samples: float = rows
    if part.loss_agg_mode in TOKEN_SUMS:
        samples = _prompts(trainer) * trainer.config.actor_rollout_ref.rollout.n
    if len(batch.tags) - rows >= len(batch.tags) / number:  # a mini-batch that is only padding would have no loss
        number = 1

    def run(batch: Any) -> Any:
        del batch.extra_info["mini_batch_size"]
        batch.extra_info.update(num_mini_batch=number, global_batch_size=samples / number)
        return getattr(workers, method)(batch)

    setattr(trainer, group, SimpleNamespace(**{method: run}))
    try:
        yield
    finally:
        setattr(trainer, group, workers)
        batch.extra_info.pop("num_mini_batch", None)  # the actor and the critic set different numbers


def _rows_of_one_gpu(trainer: Any, part: Any) -> int:
    """Return the number that must divide each GPU's number of rows, so that fixed-size micro-batches are full."""
    micro = 1 if part.use_dynamic_bsz else part.ppo_micro_batch_size_per_gpu or 1
    return int(mini_batches(trainer, part) * micro)


def needs_log_probs(trainer: Any) -> bool:
    """Whether the old log-probs are needed before the update; otherwise the update computes the same values."""
    config = trainer.config
    actor, correction = config.actor_rollout_ref.actor, config.algorithm.get("rollout_correction") or {}
    reasons = (
        actor.ppo_epochs > 1,
        mini_batches(trainer, actor) > 1,
        trainer.parameter_sync_step > 1,  # the engine gets new weights only after several updates
        any(correction.get(key) for key in ("rollout_is", "rollout_rs", "bypass_mode")),
        config.algorithm.use_kl_in_reward,
        config.algorithm.adv_estimator in READERS,
        (config.get("distillation") or {}).get("enabled"),
        actor.strategy not in ("fsdp", "fsdp2"),
    )
    return any(reasons)


def rename_metrics(metrics: dict[str, Any]) -> None:
    """Rename metrics that are measured in the update to the names that verl uses in the log-prob pass."""
    for name in [name for name in metrics if name.startswith(f"actor/{DIFF}")]:
        metrics[name.removeprefix("actor/")] = metrics.pop(name)


def policy_loss(module: ModuleType) -> None:
    """`verl.workers.engine_workers`: let the loss use its own log-probs if the batch contains no old log-probs.

    Each call gets one micro-batch, with every token's log-probs in `model_output` and the tensors in `data`.
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
            mean = diff_BT.sum() / data["batch_num_tokens"] * data["dp_size"]  # the mean over all GPUs' micro-batches
            metrics[f"{DIFF}_mean"] = Metric(AggregationType.SUM, mean)
            metrics[f"{DIFF}_max"] = Metric(AggregationType.MAX, diff_BT.max())
        return loss, metrics

    module.ppo_loss = ppo_loss  # type: ignore[attr-defined]
