"""Which samples of a prompt are trained on after some of its sessions have failed: plain functions.

A failed session has written nothing, and its group is trained on without it. A single sample has no baseline, and would
move the normalisation of the others, so it is left out before the estimator sees the batch. Long episodes fail more
often than short ones: the sizes of what was lost are logged next to those of what was kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from agent_rl.verl_adapter.algorithms import remax

__all__ = [
    "SampleFate",
    "fewest",
    "filled",
    "final_rows",
    "finals",
    "is_usable",
    "lone",
    "samples",
    "session_of",
    "share_metrics",
]

WITHOUT_GROUP = ("gae", "reinforce_plus_plus", "remax", remax.ESTIMATOR)
"""Estimators whose baseline is not the group's."""
FATES = ("kept", "lost", "evicted", "filtered", "stale")


class SampleFate(NamedTuple):
    """What became of a trajectory, its response tokens and its turns; None: unknown."""

    fate: str
    tokens: float | None = None
    turns: float | None = None


def fewest(config: Any) -> int:
    """Fewest samples of a prompt that can be trained on: 2 where the baseline is the group's, otherwise 1."""
    estimator, n = config.algorithm.adv_estimator, config.actor_rollout_ref.rollout.n
    return 1 if estimator in WITHOUT_GROUP or n == 1 else 2


def is_usable(failed: Collection[int], sessions: int, config: Any) -> bool:
    """Whether a prompt can be trained on without the sessions of it that have failed, of so many.

    With ReMax the first session is greedy: it is not a sample, and the group needs it.
    """
    if config.algorithm.adv_estimator == remax.ESTIMATOR:
        return remax.GREEDY_SESSION not in failed and sessions - len(failed) > 1
    return sessions - len(failed) >= fewest(config)


def session_of(key: str) -> str:
    """`{uid}_{session}` of the key `{uid}_{session}_{index}` of a training sequence."""
    return key.rpartition("_")[0]


def final_rows(keys: Sequence[str]) -> dict[str, int]:
    """For each session the row of its last sequence, which stands for the whole trajectory."""
    return {session_of(key): row for row, key in sorted(enumerate(keys), key=lambda e: int(e[1].rpartition("_")[2]))}


def finals(keys: Sequence[str]) -> list[str]:
    """The last key of each session."""
    return [keys[row] for row in final_rows(keys).values()]


def lone(keys: Sequence[str], at_least: int, baselines: Collection[str] | None = None) -> set[str]:
    """The keys of prompts with fewer than `at_least` samples, or without one of `baselines` (None: none is needed)."""
    counts = Counter(session.split("_")[0] for session in final_rows(keys))
    usable = {uid for uid, count in counts.items() if count >= at_least and (baselines is None or uid in baselines)}
    return {key for key in keys if key.split("_")[0] not in usable}


def samples(
    fate: str, tags: Mapping[str, Mapping[str, Any]], reported: Sequence[Mapping[str, Any]]
) -> list[SampleFate]:
    """Trajectories of verl's rows.

    Args:
        fate: one of `FATES`.
        tags: by key, with `response_len`.
        reported: what the reward manager reports of each trajectory, in the order of `finals`.
    """
    tokens = Counter[str]()
    for key, tag in tags.items():
        tokens[session_of(key)] += tag["response_len"]
    sessions = final_rows(list(tags))
    return [SampleFate(fate, tokens[name], info.get("turns")) for name, info in zip(sessions, reported, strict=True)]


def share_metrics(samples: Sequence[SampleFate]) -> dict[str, float]:
    """For each fate its share of the samples, and the means of their tokens and turns where they are known."""
    metrics = {}
    for fate in FATES:
        own = [sample for sample in samples if sample.fate == fate]
        metrics[f"{fate}_share"] = len(own) / max(1, len(samples))
        for name in ("tokens", "turns"):
            if known := [value for sample in own if (value := getattr(sample, name)) is not None]:
                metrics[f"{fate}_{name}"] = fmean(known)
    return metrics


def filled(uids: Sequence[str], values: Sequence[Any], expected: Mapping[str, int]) -> list[Any]:
    """The values of a validation's samples, and for each missing sample of a prompt the mean of its others.

    verl averages what has the same number of samples only: `mean@8` would be that of the prompts of which none failed.

    Args:
        uids: the prompt of each sample.
        values: of each sample; numbers, or what verl does not average.
        expected: number of samples by prompt.
    """
    own: dict[str, list[Any]] = defaultdict(list)
    for uid, value in zip(uids, values, strict=True):
        own[uid].append(value)
    added: list[Any] = []
    for uid, its in own.items():
        known = [value for value in its if isinstance(value, int | float)]
        added += [fmean(known) if known else its[0]] * (expected[uid] - len(its))
    return [*values, *added]
