"""Patches of the trainer that decide which samples an estimator sees, how often, and what a validation averages."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from agent_rl.errors import UnscoredError
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.failures import not_trained, nothing_usable, reported
from agent_rl.verl_adapter.survivors import fewest, filled, final_rows, lone, samples, session_of

__all__ = ["accept_empty_batches", "compare_trajectories", "counts", "leave_out_lone", "validate_survivors"]

OF_A_GROUP = ("gpg", "grpo_passk", "grpo_vectorized", "opo", "reinforce_plus_plus_baseline", "rloo", "rloo_vectorized")
"""verl's estimators, without grpo, that compute one advantage for a sample from the rewards of its group."""
counts: Counter[str] = Counter()
"""`skipped_updates` and `without_baseline` (prompts) of the run since the last step."""


def leave_out_lone(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: leave out samples without a baseline, before rows that fill up are added.

    A batch that has no others stays as it is and makes no update, see `compare_trajectories`.
    """
    original = module.PPOTrainer._balance_batch

    @functools.wraps(original)
    def balance(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        baselines = None
        if self.config.algorithm.adv_estimator == remax.ESTIMATOR:
            baselines = remax.published().keys()
            counts["without_baseline"] += len({key.split("_")[0] for key in batch.keys} - baselines)
        gone = lone(batch.keys, fewest(self.config), baselines)
        self._agent_rl_idle = len(gone) == len(batch.keys)
        if gone and not self._agent_rl_idle:
            tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if key in gone}
            not_trained.extend(samples("evicted", tags, reported(module.tq, tags, batch.partition_id)))
            module.tq.kv_clear(keys=list(gone), partition_id=batch.partition_id)
            batch = batch.select_keys([key for key in batch.keys if key not in gone])
        return original(self, batch, *args, **kwargs)

    module.PPOTrainer._balance_batch = balance


def compare_trajectories(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: a trajectory is one member of its group, however many sequences it has.

    A batch without a token that is trained on, over which verl cannot normalise, or without a group that is large
    enough, gets the advantage 0 and makes no update.
    """
    trainer, estimate = module.PPOTrainer, module.compute_advantage_for_multi_trajectories
    original = trainer._compute_advantage
    trainers: list[Any] = []

    @functools.wraps(estimate)
    def estimate_once(data: Any, batch_keys: Sequence[str], adv_estimator: Any, **options: Any) -> Any:
        (self,) = trainers
        self._agent_rl_idle |= not bool(data.batch["response_mask"].any())
        compute = functools.partial(estimate, adv_estimator=adv_estimator, **options)
        if self._agent_rl_idle:
            counts["skipped_updates"] += 1
            data.batch["advantages"] = data.batch["returns"] = data.batch["token_level_rewards"] * 0
            return data
        is_of_group = adv_estimator in OF_A_GROUP
        self._agent_rl_advantages = (  # for `keep_batches`
            _of_trajectories(compute, data, batch_keys) if is_of_group else compute(data, batch_keys=batch_keys)
        )
        return self._agent_rl_advantages

    @functools.wraps(original)
    def compute_advantage(self: Any, *args: Any, **kwargs: Any) -> Any:
        trainers[:] = [self]
        return original(self, *args, **kwargs)

    module.compute_advantage_for_multi_trajectories = estimate_once  # type: ignore[attr-defined]
    trainer._compute_advantage = compute_advantage
    trainer._update_actor, trainer._update_critic = map(_unless_idle, (trainer._update_actor, trainer._update_critic))


def _of_trajectories(compute: Callable[..., Any], data: Any, keys: Sequence[str]) -> Any:
    """The advantages of the trajectories' last sequences, on all tokens of all their sequences; 0 on padding."""
    import torch

    own = [row for row, key in enumerate(keys) if not key.startswith("pad")]  # verl's rows that fill up a batch
    places = final_rows([keys[row] for row in own])
    rows = [own[place] for place in places.values()]
    final = compute(data.select_idxs(rows), batch_keys=[keys[row] for row in rows]).batch
    values = final["advantages"][torch.arange(len(rows)), final["response_mask"].argmax(dim=1)].tolist()
    of_session = dict(zip(places, values, strict=True))
    advantages_B = torch.tensor([of_session.get(session_of(key), 0.0) for key in keys])
    data.batch["advantages"] = data.batch["returns"] = advantages_B.unsqueeze(-1) * data.batch["response_mask"]
    return data


def _unless_idle(update: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(update)
    def update_or_skip(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        return batch if self._agent_rl_idle else update(self, batch, *args, **kwargs)

    return update_or_skip


def validate_survivors(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: a validation's numbers are those of the trajectories that have a score.

    verl counts a missing one as accuracy 0, so that a judge that is away looks like a policy that got worse. Adds
    `val-core/<source>/missing`, the number of trajectories without a score.
    """
    original = module.PPOTrainer._val_metrics_update

    @functools.wraps(original)
    def update(self: Any, sources: Any, uids: Any, infos: Any, turns: Any, expected_acc_counts: Any) -> Any:
        if not uids:
            raise UnscoredError(nothing_usable(self.replay_buffer, "every trajectory failed", "of the validation"))
        expected, scored = {uid: number for (_, uid), number in expected_acc_counts.items()}, Counter(uids)
        names = [filled(uids, values, expected) for values in (sources, uids)]
        metrics = original(self, *names, {key: filled(uids, values, expected) for key, values in infos.items()}, turns)
        for (source, uid), number in expected_acc_counts.items():
            name = f"val-core/{source}/missing"
            metrics[name] = metrics.get(name, 0) + number - scored[uid]
        return metrics

    module.PPOTrainer._val_metrics_update = update


def accept_empty_batches(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: empty columns for no keys, where TransferQueue raises an error.

    A validation asks for them after a batch of which every trajectory failed: a row, with `data.val_batch_size=1`.
    """
    original = module.tq.kv_batch_get

    @functools.wraps(original)
    def get(keys: Any, partition_id: str, select_fields: Any = None) -> Any:
        if keys:
            return original(keys=keys, partition_id=partition_id, select_fields=select_fields)
        return {name: _Nothing() for name in select_fields}

    module.tq.kv_batch_get = get


class _Nothing(list[Any]):
    """A column without rows, with the methods of tensors that verl uses."""

    def to_padded_tensor(self, **_: Any) -> _Nothing:
        return self

    sum, tolist = to_padded_tensor, list.copy
