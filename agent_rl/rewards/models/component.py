"""`RewardModel`, `kind: reward_model`: the scores of one or several reward models, combined.

    agent_rl:
      reward:
        components:
          quality:
            kind: reward_model
            weight: 0.5
            config:
              combine: mean
              models:
                helpful: {url: "http://localhost:8000", kind: generative, model: Qwen/Qwen3-8B}
                preferred: {weight: 2.0}     # served by this run: agent_rl.reward.models.preferred

Every model's score is logged as `<component>_<model>`, and the number of those that read a shortened conversation as
`<component>_truncated`. If one of them gives none, the trajectory is unscored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.rewards.models.model import Model, ModelConfig
from agent_rl.rewards.rm_prompt import with_judge_prompt
from agent_rl.trajectory import Trajectory
from agent_rl.work.concurrency import together

__all__ = ["RewardModel", "RewardModelConfig"]

TRUNCATED = "truncated"
"""Logged: the number of models that read the trajectory cut to `prompt_length` and `response_length`."""
Combine = Literal["add", "mul", "min", "max", "mean"]

_COMBINED: dict[Combine, Callable[[list[float]], float]] = {"add": math.fsum, "mul": math.prod, "min": min, "max": max}


class RewardModelConfig(ComponentConfig):
    """`config` of the component."""

    models: dict[str, ModelConfig] = Field(min_length=1)
    """By any names; one without a url is the model of that name in `agent_rl.reward.models`."""
    combine: Combine = "add"
    """How the weighted scores are combined; `mean` divides by the sum of the weights."""

    @field_validator("models")
    @classmethod
    def _named(cls, value: dict[str, ModelConfig]) -> dict[str, ModelConfig]:
        if TRUNCATED in value:
            raise ValueError(f"{TRUNCATED!r} is logged by the component itself: choose another name")
        return value

    @model_validator(mode="after")
    def _has_a_mean(self) -> RewardModelConfig:
        if self.combine == "mean" and not math.fsum(model.weight for model in self.models.values()):
            raise ValueError("the weights of a mean must not add up to 0")
        return self


class RewardModel(Component, kind="reward_model"):
    """Measures a trajectory by one or several reward models.

    Raises:
        ConfigError: see `Model`.
    """

    Config: ClassVar[type[BaseModel]] = RewardModelConfig

    def __init__(self, name: str, config: RewardModelConfig) -> None:
        super().__init__(name, config)
        key = f"agent_rl.reward.components.{name}.config.models"
        self._models = [Model(each, f"{key}.{each}", settings) for each, settings in config.models.items()]
        self._cuts = any(model.prompt_length or model.response_length for model in config.models.values())
        self.logs = (*config.models, *((TRUNCATED,) if self._cuts else ()))

    async def reach(self) -> None:
        """Ask each endpoint for its models; a model that the run serves is not there yet."""
        for model in self._models:
            await model.reach()

    async def measure(self, trajectory: Trajectory) -> Value:
        """The combined score.

        Raises:
            UnscoredError: one of the models gave no number.
            ConfigError: one of the models has no usable configuration.
        """
        asked = [model.score(with_judge_prompt(trajectory, model.name, self.name)) for model in self._models]
        results = dict(zip(self.config.models, await together(asked), strict=True))
        scores = {name: score for name, (score, _) in results.items()}
        weights = {name: model.weight for name, model in self.config.models.items()}
        cut = {TRUNCATED: float(sum(was_cut for _, was_cut in results.values()))} if self._cuts else {}
        return Value(combined(self.config.combine, scores, weights), logged={**scores, **cut})


def combined(how: Combine, scores: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Combine weighted scores; those with weight 0 are left out, and without any score the value is 0."""
    counting = [name for name in scores if weights[name] != 0]
    weighted = [scores[name] * weights[name] for name in counting]
    if not counting:
        return 0.0
    if how == "mean":
        return math.fsum(weighted) / math.fsum(weights[name] for name in counting)
    return _COMBINED[how](weighted)
