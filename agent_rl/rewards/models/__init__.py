"""Reward models: the `reward_model` component combines the scores of models that were trained to judge.

This package must not depend on how a model is served, because it only uses the model's address. The trainer sets the
addresses of the models that the run serves itself (`agent_rl.reward.models`).
"""

from agent_rl.rewards.models.component import RewardModel, RewardModelConfig
from agent_rl.rewards.models.model import ModelConfig

__all__ = ["ModelConfig", "RewardModel", "RewardModelConfig"]
