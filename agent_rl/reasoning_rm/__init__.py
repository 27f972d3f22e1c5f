"""Reward models that reason before they score: samples, prompt templates, rewards, and their training data sets.

    from agent_rl.reasoning_rm import BasePromptTemplate, BaseTrainDataset, RewardModule

This package is quick to import, because it contains only pure functions and pydantic models. The data set classes need
verl, so they are imported from `agent_rl.verl_adapter.judge_data_sets` on first access.
"""

from importlib import import_module
from typing import Any

from agent_rl.reasoning_rm.reward_module import RewardModule
from agent_rl.reasoning_rm.rewards import (
    calculate_reward,
    compute_score,
    format_reward,
    pairwise_reward,
    pointwise_reward,
)
from agent_rl.reasoning_rm.sample import DataSample
from agent_rl.rewards.judge.kinds import (
    PairwiseTemplate,
    PointwiseTemplate,
    RubricTemplate,
    find_template,
)
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate

__all__ = [
    "BasePromptTemplate",
    "BaseTrainDataset",
    "DataSample",
    "PairwiseTemplate",
    "PairwiseTrainDataset",
    "PointwiseTemplate",
    "PointwiseTrainDataset",
    "RewardModule",
    "RubricTemplate",
    "calculate_reward",
    "compute_score",
    "find_template",
    "format_reward",
    "pairwise_reward",
    "pointwise_reward",
]

_DATA_SETS = ("BaseTrainDataset", "PairwiseTrainDataset", "PointwiseTrainDataset")


def __getattr__(name: str) -> Any:
    if name not in _DATA_SETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("agent_rl.verl_adapter.judge_data_sets"), name)
