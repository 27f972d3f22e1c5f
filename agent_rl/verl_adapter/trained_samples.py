"""Which samples an estimator sees, what a step's metrics say of the others, and what a validation averages over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import transfer_queue as tq

from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.survivors import (
    SampleFate,
    fewest,
    filled,
    final_rows,
    finals,
    lone,
    samples,
    session_of,
    share_metrics,
)

__all__ = ["OF_A_GROUP", "StepSamples", "mean_reports", "of_survivors", "of_trajectories", "reported", "without_lone"]

OF_A_GROUP = ("gpg", "grpo_passk", "grpo_vectorized", "opo", "reinforce_plus_plus_baseline", "rloo", "rloo_vectorized")
"""verl's estimators, without grpo, that compute one advantage for a sample from the rewards of its group."""


@dataclass
class StepSamples:
    """The samples since the last step that no batch has.

    Attributes:
        left_out: those that had a score.
        counts: `skipped_updates`, and `without_baseline` (prompts).
    """

    left_out: list[SampleFate] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def take_metrics(
        self, batch: Any, reports: Sequence[Mapping[str, Any]], failed: Sequence[Mapping[str, Any]]
    ) -> dict[str, float]:
        """The metrics of a step's samples, of which the next step knows nothing.

        Args:
            batch: of the step.
            reports: of its trajectories.
            failed: the tags of those that have no score.
        """
        tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")}
        lost = [SampleFate("lost", tag["tokens"], tag["turns"]) for tag in failed]
        shares = share_metrics([*samples("kept", tags, reports), *lost, *self.left_out])
        numbers = {"unscored": len(failed), "skipped_updates": 0, **self.counts, **shares}
        self.left_out, self.counts = [], Counter()
        return {f"agent/{name}": value for name, value in numbers.items()}


def reported(keys: Iterable[str], partition_id: str) -> list[dict[str, Any]]:
    """What the reward manager reports of each trajectory, in the order of `finals`; empty while it has no score."""
    if not (last := finals(list(keys))):
        return []
    data = tq.kv_batch_get(keys=last, partition_id=partition_id, select_fields=["extra_fields"])
    return [dict(getattr(each, "data", each)).get("reward_extra_info") or {} for each in data["extra_fields"]]


def mean_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """`agent/<key>`: the mean of each number that is reported, over the trajectories that have it."""
    metrics = {}
    for key in dict.fromkeys(key for report in reports for key in report):
        values = [report[key] for report in reports if isinstance(report.get(key), int | float)]
        if values:
            metrics[f"agent/{key}"] = sum(values) / len(values)
    return metrics


def without_lone(batch: Any, config: Any, step: StepSamples) -> tuple[Any, bool]:
    """A batch without the samples that have no baseline, and whether it makes no update.

    One that has no others stays as it is, and makes none.
    """
    baselines = None
    if config.algorithm.adv_estimator == remax.ESTIMATOR:
        baselines = remax.published().keys()
        step.counts["without_baseline"] += len({key.split("_")[0] for key in batch.keys} - baselines)
    gone = lone(batch.keys, fewest(config), baselines)
    is_idle = len(gone) == len(batch.keys)
    if gone and not is_idle:
        tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if key in gone}
        step.left_out += samples("evicted", tags, reported(tags, batch.partition_id))
        tq.kv_clear(keys=list(gone), partition_id=batch.partition_id)
        batch = batch.select_keys([key for key in batch.keys if key not in gone])
    return batch, is_idle


def of_trajectories(compute: Callable[..., Any], data: Any, batch_keys: Sequence[str]) -> Any:
    """The advantages of the trajectories' last sequences, on all tokens of all their sequences; 0 on padding."""
    import torch

    own = [row for row, key in enumerate(batch_keys) if not key.startswith("pad")]  # others only fill up the batch
    places = final_rows([batch_keys[row] for row in own])
    rows = [own[place] for place in places.values()]
    final = compute(data.select_idxs(rows), batch_keys=[batch_keys[row] for row in rows]).batch
    values = final["advantages"][torch.arange(len(rows)), final["response_mask"].argmax(dim=1)].tolist()
    of_session = dict(zip(places, values, strict=True))
    advantages_B = torch.tensor([of_session.get(session_of(key), 0.0) for key in batch_keys])
    data.batch["advantages"] = data.batch["returns"] = advantages_B.unsqueeze(-1) * data.batch["response_mask"]
    return data


def of_survivors(
    uids: Sequence[str], columns: Mapping[str, Sequence[Any]], expected: Mapping[tuple[str, str], int]
) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """A validation's columns as if the missing samples of a prompt were the mean of its others, and their numbers.

    Args:
        uids: the prompt of each sample that has a score.
        columns: of these samples.
        expected: the number of samples by source and prompt.

    Returns:
        The columns with one more, `uid`, and `val-core/<source>/missing`.
    """
    numbers, scored = {uid: number for (_, uid), number in expected.items()}, Counter(uids)
    missing: Counter[str] = Counter()
    for (source, uid), number in expected.items():
        missing[f"val-core/{source}/missing"] += number - scored[uid]
    return {name: filled(uids, values, numbers) for name, values in {**columns, "uid": uids}.items()}, dict(missing)
