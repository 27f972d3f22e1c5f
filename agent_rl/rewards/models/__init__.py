"""Reward models: the component `reward_model` combines the scores of models that were trained to judge.

They must not know who serves a model: each has an address, which the trainer fills in for those that the run serves
itself (`agent_rl.reward.models`).
"""

from agent_rl.rewards.models.component import RewardModel, RewardModelConfig
from agent_rl.rewards.models.model import ModelConfig

__all__ = ["ModelConfig", "RewardModel", "RewardModelConfig"]
