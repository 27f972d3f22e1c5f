"""Reward models: the component `reward_model`, which asks models that were trained to judge.

`component` combines the scores of several, `model` asks one, `batching` gathers requests that wait at the same time,
and `conversation` makes of a trajectory what a model is shown. Who serves the models is another matter: each has an
address, which the trainer fills in for those that the run serves itself (`agent_rl.reward.models`).
"""

from agent_rl.rewards.models.component import RewardModel, RewardModelConfig
from agent_rl.rewards.models.model import ModelConfig

__all__ = ["ModelConfig", "RewardModel", "RewardModelConfig"]
