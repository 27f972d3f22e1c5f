"""The `RewardModel` component (`kind: reward_model`) combines the scores of one or more reward models.

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

The score of each model is logged as `<component>_<model>`. `<component>_truncated` is the number of models that read a
shortened conversation. If any model fails to return a score, the trajectory is unscored.
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

TRUNCATED = "truncated"
"""The component logs under this key how many models read a trajectory cut to `prompt_length` or `response_length`."""
Combine = Literal["add", "mul", "min", "max", "mean"]

_COMBINED: dict[Combine, Callable[[list[float]], float]] = {"add": math.fsum, "mul": math.prod, "min": min, "max": max}


class RewardModelConfig(ComponentConfig):
    """The `config` section of the component."""

    models: dict[str, ModelConfig] = Field(min_length=1)
    """Reward models by name. An entry without `url` uses the model of the same name in `agent_rl.reward.models`."""
    combine: Combine = "add"
    """How the weighted scores are combined; `mean` divides by the sum of the weights."""

    @field_validator("models")
    @classmethod
    def _check_names(cls, value: dict[str, ModelConfig]) -> dict[str, ModelConfig]:
        if TRUNCATED in value:
            raise ValueError(f"the component logs its own number as {TRUNCATED!r}; choose another model name")
        return value

    @model_validator(mode="after")
    def _check_weights(self) -> RewardModelConfig:
        if self.combine == "mean" and not math.fsum(model.weight for model in self.models.values()):
            raise ValueError("combine: mean divides by the sum of the weights, which must not be 0; change a weight")
        return self


class RewardModel(Component, kind="reward_model"):
    """Measures a trajectory with one or more reward models.

    Raises:
        ConfigError: see `Model`.
    """

    Config: ClassVar[type[BaseModel]] = RewardModelConfig

    def __init__(self, name: str, config: RewardModelConfig) -> None:
        super().__init__(name, config)
        key = f"agent_rl.reward.components.{name}.config.models"
        self._models = [Model(model, f"{key}.{model}", settings) for model, settings in config.models.items()]
        self._cuts = any(model.prompt_length or model.response_length for model in config.models.values())
        self.logs = (*config.models, *((TRUNCATED,) if self._cuts else ()))

    async def reach(self) -> None:
        """Check each endpoint; a model that the run itself will serve has no address yet and is skipped."""
        for model in self._models:
            await model.reach()

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the combined score of the models.

        Raises:
            UnscoredError: a model returned no usable score.
            ConfigError: the configuration of a model cannot be used.
        """
        scoring = [model.score(with_judge_prompt(trajectory, model.name, self.name)) for model in self._models]
        results = dict(zip(self.config.models, await together(scoring), strict=True))
        scores = {name: score for name, (score, _) in results.items()}
        weights = {name: model.weight for name, model in self.config.models.items()}
        truncated = {TRUNCATED: float(sum(is_cut for _, is_cut in results.values()))} if self._cuts else {}
        return Value(combined(self.config.combine, scores, weights), logged={**scores, **truncated})


def combined(how: Combine, scores: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """Combine weighted scores. Scores with weight 0 are ignored; if no scores remain, the result is 0."""
    names = [name for name in scores if weights[name] != 0]
    weighted = [scores[name] * weights[name] for name in names]
    if not names:
        return 0.0
    if how == "mean":
        return math.fsum(weighted) / math.fsum(weights[name] for name in names)
    return _COMBINED[how](weighted)
