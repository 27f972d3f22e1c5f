"""Reward models: the component `reward_model` combines the scores of models that were trained to judge.

It must not know what serves a model: each has an address, which the trainer sets for the models that the run serves
itself (`agent_rl.reward.models`).
"""

from agent_rl.rewards.models.component import RewardModel, RewardModelConfig
from agent_rl.rewards.models.model import ModelConfig

__all__ = ["ModelConfig", "RewardModel", "RewardModelConfig"]
