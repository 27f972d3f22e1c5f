"""Selects the samples to train on, reports the other samples in a step's metrics, and averages validation results.

A failed session has written nothing, so training uses the group without that session. A group's only sample has no
baseline and would shift the normalization of other samples, so it is left out. Long episodes fail more often than
short ones, so the kept samples are compared with all samples (`agent_rl.trajectory.selection`). `keep_batch` writes
the rows of each update and their advantages next to the trace; verl itself keeps no record of these rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from agent_rl.settings.sections import TraceSettings
from agent_rl.trajectory import LEFT_OUT
from agent_rl.trajectory.selection import SampleFate, fate_means, selection_bias
from agent_rl.trajectory.trace import TraceWriter, TrainedBatch
from agent_rl.verl_adapter.algorithms import maxrl, remax

GROUPWISE = (
    *("gdpo", "gpg", "grpo_passk", "grpo_vectorized", "opo", "reinforce_plus_plus_baseline", "rloo", "rloo_vectorized"),
    maxrl.ESTIMATOR,
)
"""Estimators other than grpo that compute one advantage per sample from the rewards of its group."""
WITHOUT_GROUP = ("gae", "reinforce_plus_plus", "remax", remax.ESTIMATOR)
"""Estimators that do not use the group as a baseline."""


def fewest(config: Any) -> int:
    """Return the minimum number of samples per prompt that training needs: 2 with a group baseline, otherwise 1."""
    estimator, n = config.algorithm.adv_estimator, config.actor_rollout_ref.rollout.n
    return 1 if estimator in WITHOUT_GROUP or n == 1 else 2


def is_usable(failed: Collection[int], sessions: int, config: Any) -> bool:
    """Whether training can use a prompt's remaining sessions after some of its sessions have failed.

    With ReMax, the first session is greedy: it is not a sample, but the group needs its reward.
    """
    if config.algorithm.adv_estimator == remax.ESTIMATOR:
        return remax.GREEDY_SESSION not in failed and sessions - len(failed) > 1
    return sessions - len(failed) >= fewest(config)


def session_of(key: str) -> str:
    """Return the `{uid}_{session}` part of a training sequence's key, `{uid}_{session}_{index}`."""
    return key.rpartition("_")[0]


def final_rows(keys: Sequence[str]) -> dict[str, int]:
    """Return the row of each session's last sequence, which represents the whole trajectory, without padding rows."""
    rows = [row for row, key in enumerate(keys) if not key.startswith("pad")]
    return {session_of(keys[row]): row for row in sorted(rows, key=lambda row: int(keys[row].rpartition("_")[2]))}


def finals(keys: Sequence[str]) -> list[str]:
    """Return the key of each session's last sequence."""
    return [keys[row] for row in final_rows(keys).values()]


def lone(keys: Sequence[str], at_least: int, baselines: Collection[str] | None = None) -> set[str]:
    """Return the keys of prompts with fewer than `at_least` samples or, if `baselines` is set, without a baseline."""
    counts = Counter(session.split("_")[0] for session in final_rows(keys))
    usable = {uid for uid, count in counts.items() if count >= at_least and (baselines is None or uid in baselines)}
    return {key for key in keys if key.split("_")[0] not in usable}


def samples(
    fate: str,
    tags: Mapping[str, Mapping[str, Any]],
    reported: Sequence[Mapping[str, Any]],
    rewards: Sequence[float | None] = (),
) -> list[SampleFate]:
    """Return the fates of the trajectories in verl's rows; a kept trajectory without a trained token is `masked`.

    Args:
        fate: one of `FATES`.
        tags: the tag of each key, which contains `response_len`.
        reported: the reward manager's report on each trajectory, in the order of `finals`.
        rewards: the reward of each trajectory in the same order, or an empty sequence if the rewards are unknown.
    """
    tokens = Counter[str]()
    for key, tag in tags.items():
        tokens[session_of(key)] += tag["response_len"]
    made = []
    for name, info, reward in zip(final_rows(list(tags)), reported, rewards or [None] * len(reported), strict=True):
        own = "masked" if fate == "kept" and info.get(LEFT_OUT) else fate
        made.append(SampleFate(own, tokens[name], info.get("turns"), name.rpartition("_")[0], reward))
    return made


@dataclass
class StepSamples:
    """Samples since the last step that are not part of a batch.

    Attributes:
        left_out: the samples with a score.
        limits: the lowest and the highest reward of the run so far.
        counts: the numbers of `skipped_updates` and of prompts `without_baseline`.
    """

    left_out: list[SampleFate] = field(default_factory=list)
    limits: tuple[float, float] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def take_metrics(
        self, batch: Any, reports: Sequence[Mapping[str, Any]], failed: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, float]:
        """Return the metrics of a step's samples, and reset the counts.

        Args:
            batch: the step's batch.
            reports: the reward manager's reports on the batch's trajectories.
            failed: the tags of the sessions without a score, by session.
        """
        tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")}
        lost = [
            SampleFate(tag["fate"], tag["tokens"], tag["turns"], key.rpartition("_")[0]) for key, tag in failed.items()
        ]
        every = [*samples("kept", tags, reports, rewards(tags, batch.partition_id)), *lost, *self.left_out]
        if seen := [*(self.limits or ()), *(own.reward for own in every if own.reward is not None)]:
            self.limits = min(seen), max(seen)
        means = {f"{fate}_{name}": value for fate, own in fate_means(every).items() for name, value in own.items()}
        bias = {f"bias_{name}": value for name, value in selection_bias(every, self.limits).items()}
        unscored = sum(sample.fate == "lost" for sample in lost)
        numbers = {"unscored": unscored, "skipped_updates": 0, **self.counts, **means, **bias}
        self.left_out, self.counts = [], Counter()
        return {f"agent/{name}": value for name, value in numbers.items()}


def reported(keys: Iterable[str], partition_id: str) -> list[dict[str, Any]]:
    """Return the manager's report on each trajectory, or {} for an unscored one, in the order of `finals`."""
    if not (last := finals(list(keys))):
        return []
    import transfer_queue as tq

    data = tq.kv_batch_get(keys=last, partition_id=partition_id, select_fields=["extra_fields"])
    return [dict(getattr(each, "data", each)).get("reward_extra_info") or {} for each in data["extra_fields"]]


def rewards(keys: Iterable[str], partition_id: str) -> list[float]:
    """Return the stored reward of each trajectory, in the order of `finals`."""
    if not (last := finals(list(keys))):
        return []
    import transfer_queue as tq

    data = tq.kv_batch_get(keys=last, partition_id=partition_id, select_fields=["rm_scores"])
    return [float(scores.sum()) for scores in data["rm_scores"].unbind()]


def mean_reports(reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return `agent/<key>`, the mean of each reported number over the trajectories that report it."""
    metrics = {}
    for key in dict.fromkeys(key for report in reports for key in report):
        values = [report[key] for report in reports if isinstance(report.get(key), int | float)]
        if values:
            metrics[f"agent/{key}"] = sum(values) / len(values)
    return metrics


def without_lone(batch: Any, config: Any, step: StepSamples) -> tuple[Any, bool]:
    """Remove the samples without a baseline from a batch; also return whether the batch makes no update.

    A batch in which no sample has a baseline stays unchanged and makes no update.
    """
    baselines = None
    if config.algorithm.adv_estimator == remax.ESTIMATOR:
        baselines = remax.published().keys()
        step.counts["without_baseline"] += len({key.split("_")[0] for key in batch.keys} - baselines)
    gone = lone(batch.keys, fewest(config), baselines)
    is_idle = len(gone) == len(batch.keys)
    if gone and not is_idle:
        import transfer_queue as tq

        tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if key in gone}
        own = reported(tags, batch.partition_id), rewards(tags, batch.partition_id)
        step.left_out += samples("evicted", tags, *own)
        tq.kv_clear(keys=list(gone), partition_id=batch.partition_id)
        batch = batch.select_keys([key for key in batch.keys if key not in gone])
    return batch, is_idle


def trajectory_advantages(compute: Callable[..., Any], data: Any, batch_keys: Sequence[str]) -> Any:
    """Compute each trajectory's advantage from its last sequence, and assign it to all its tokens; padding gets 0."""
    import torch

    places = final_rows(batch_keys)
    rows = list(places.values())
    final = compute(data.select_idxs(rows), batch_keys=[batch_keys[row] for row in rows]).batch
    values = final["advantages"][torch.arange(len(rows)), final["response_mask"].argmax(dim=1)].tolist()
    of_session = dict(zip(places, values, strict=True))
    advantages = [of_session.get(session_of(key), 0.0) for key in batch_keys]
    advantages_B = torch.tensor(advantages, dtype=final["advantages"].dtype)
    data.batch["advantages"] = data.batch["returns"] = advantages_B.unsqueeze(-1) * data.batch["response_mask"]
    return data


def fill_missing_samples(
    uids: Sequence[str], columns: Mapping[str, Sequence[Any]], expected: Mapping[tuple[str, str], int]
) -> tuple[dict[str, list[Any]], dict[str, float]]:
    """Replace a prompt's missing validation samples with the mean of its other samples, and count missing samples.

    verl averages only prompts with equal numbers of samples, so `mean@8` would cover only prompts without a failure.

    Args:
        uids: the prompt of each sample that has a score.
        columns: the columns of these samples, which contain numbers, or values that verl does not average.
        expected: the expected number of samples by source and prompt.

    Returns:
        The columns with `uid` added, and the metrics `val-core/<source>/missing`.
    """
    rows: dict[str, list[int]] = defaultdict(list)
    for row, uid in enumerate(uids):
        rows[uid].append(row)
    filled = {name: list(values) for name, values in {**columns, "uid": uids}.items()}
    missing: Counter[str] = Counter()
    for (source, uid), number in expected.items():
        missing[f"val-core/{source}/missing"] += number - len(rows[uid])
        for values in filled.values() if rows[uid] else ():
            numbers = [values[row] for row in rows[uid] if isinstance(values[row], int | float)]
            values += [fmean(numbers) if numbers else values[rows[uid][0]]] * (number - len(rows[uid]))
    return filled, dict(missing)


def keep_batch(settings: TraceSettings, step: int, update: int, batch: Any, data: Any) -> None:
    """Write an update's batch, whose tensors are in `data`, next to the trace if the trace keeps tokens."""
    if settings.path is not None and settings.tokens:
        writer = TraceWriter.shared(settings.path, settings.part_mib << 20, settings.image_mib << 20)
        writer.batch(lambda: TrainedBatch(step, update, *_trained_rows(batch, data)))


def _trained_rows(batch: Any, data: Any) -> tuple[list[str], list[float | list[float]], list[int]]:
    """Return the keys and advantages of a batch's rows, and the positions of its padding rows."""
    padding = [row for row, tag in enumerate(batch.tags) if tag.get("is_padding", False)]
    rows = enumerate(zip(batch.keys, _advantages(data), strict=True))
    advantages = dict(each for row, each in rows if row not in padding)
    return list(advantages), list(advantages.values()), padding


def _advantages(data: Any) -> Iterator[float | list[float]]:
    """For each row, yield one advantage if all trained tokens share it, otherwise one per token (-0.0: not trained)."""
    values, mask = data.batch["advantages"], data.batch["response_mask"].bool()
    lowest = values.masked_fill(~mask, float("inf")).amin(dim=1)
    highest = values.masked_fill(~mask, float("-inf")).amax(dim=1)
    lengths = (mask.shape[1] - mask.flip(1).int().argmax(dim=1)).tolist()  # a response ends with a sampled token
    for row, (low, high, length) in enumerate(zip(lowest.tolist(), highest.tolist(), lengths, strict=True)):
        if low >= high:
            yield low if low == high else 0.0  # 0.0 if no token is trained on
        else:
            yield (values[row] + 0.0).masked_fill(~mask[row], -0.0)[:length].tolist()
