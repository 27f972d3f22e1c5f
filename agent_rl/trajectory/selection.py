"""Estimates how the trajectories that are trained on differ from all trajectories that were sampled.

Failures, filters, stale samples and masks remove trajectories, and often not at random: long episodes fail more often,
and a filter removes prompts that are always or never solved. The mean gradient is then computed from
trajectories that differ from those that the policy samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

FATES = {
    "kept": "trained",
    "lost": "no score, because the episode or its scoring failed",
    "ended": "ended early, because the rest of the step waited for it",
    "evicted": "too few scores in its group, or no greedy answer (ReMax)",
    "filtered": "equal rewards in its whole group",
    "stale": "sampled too many steps ago",
    "masked": "no token in the loss (mask_void, mask_overlong)",
}
"""The fates of sampled trajectories, with their meanings."""
MEASURES = ["tokens", "turns", "prompt_reward", "reward"]
_KNOWN = ["tokens", "turns", "reward"]


class SampleFate(NamedTuple):
    """A sampled trajectory's fate, response tokens, number of turns, prompt and reward; None means unknown."""

    fate: str
    tokens: float | None = None
    turns: float | None = None
    group: str = ""
    reward: float | None = None


def fate_means(samples: Sequence[SampleFate]) -> dict[str, dict[str, float]]:
    """Return the share of the samples with each fate, and the means of their known `MEASURES`.

    `prompt_reward`, the mean reward over all scored samples of the same prompt, measures difficulty.
    """
    frame = _frame(samples)
    means = {fate: {"share": 0.0} for fate in FATES}
    for fate, own in frame.groupby("fate", sort=False):
        means[str(fate)] = {"share": len(own) / len(frame), **own[MEASURES].mean().dropna().to_dict()}
    return means


def selection_bias(samples: Sequence[SampleFate], limits: tuple[float, float] | None = None) -> dict[str, float]:
    """Return the mean over the trained samples minus the mean over all samples, for each known measure.

    `reward` is an estimate: a sample without a score is given the mean reward of its prompt, as if failures did not
    depend on the reward. `reward_bound` is the largest absolute difference that is possible if the missing rewards are
    anywhere within the limits.

    Args:
        samples: the samples, including those that were not trained on.
        limits: the lowest and highest possible reward; None means the lowest and highest reward of the samples.
    """
    frame = _frame(samples)
    kept, rewards = frame.fate == "kept", frame.reward.dropna()
    filled = frame.assign(reward=frame.reward.fillna(frame.prompt_reward))[MEASURES]
    bias: dict[str, float] = (filled[kept].mean() - filled.mean()).dropna().to_dict()
    if frame.reward[kept].notna().any():
        low, high = limits or (rewards.min(), rewards.max())
        ends = [(rewards.sum() + (len(frame) - len(rewards)) * limit) / len(frame) for limit in (low, high)]
        bias["reward_bound"] = float(max(abs(frame.reward[kept].mean() - end) for end in ends))
    return bias


def _frame(samples: Sequence[SampleFate]) -> Any:
    import pandas as pd

    frame = pd.DataFrame(samples, columns=SampleFate._fields)
    frame[_KNOWN] = frame[_KNOWN].astype(float)
    return frame.assign(prompt_reward=frame.groupby("group").reward.transform("mean"))
