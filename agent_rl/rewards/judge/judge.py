"""`Judge`: a component in which an LLM scores each trajectory alone, against the ground truth, or by a rubric.

    components:
      helpful:
        kind: judge
        config:
          url: http://localhost:30000
          model: Qwen/Qwen3-32B
          api_key_env: JUDGE_API_KEY   # optional
          mode: rubric                 # pointwise | reference | rubric
          rubric: rubrics/helpful.yaml
          votes: 3

The value is the score, scaled to the range 0 (worst) to 1 (best). A trajectory with too few verdicts is unscored. Text
in a trajectory can persuade a judge, so read the judge's reasons in the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median, multimode
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Component, ComponentConfig, Value
from agent_rl.rewards.judge.kinds import scale_of
from agent_rl.rewards.judge.panel import Ballot, Panel, PanelConfig
from agent_rl.rewards.judge.prompt import ClassTemplate, PromptTemplate, Question
from agent_rl.rewards.judge.verdict import rubric_form, score_form
from agent_rl.rewards.rm_prompt import with_judge_prompt
from agent_rl.settings.errors import Place, validated, yaml_errors
from agent_rl.trajectory import Trajectory

LOGS = ("votes", "failures", "disagreement", "calls", "tokens", "cache_hits")


class Criterion(ComponentConfig):
    """One criterion of a rubric."""

    name: str = Field(pattern=r"^\w+$")
    description: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0)
    """Weight of the criterion in the value, relative to the weights of the other criteria."""


_RUBRIC = "List the criteria, each with a name, a description and a weight"


class JudgeConfig(PanelConfig):
    """The `config` of a component of kind `judge`."""

    mode: Literal["pointwise", "reference", "rubric"] = "pointwise"
    """The verdict: one score, one score based on the ground truth (reference), or one score per criterion (rubric)."""
    scale: tuple[float, float] = (0.0, 10.0)
    """Worst and best score; the judge is asked for whole numbers if both are whole and differ by more than 1."""
    rubric: str | list[Any] | None = None
    """Criteria, or a YAML file that lists them; if null, each row has its own criteria in `extra_info.rubric`."""
    aggregate: Literal["mean", "median", "majority"] = "mean"
    """How votes are combined; `majority` is the most frequent score, or the mean of the scores that tie for it."""

    @model_validator(mode="after")
    def _goes_together(self) -> JudgeConfig:
        if self.scale[0] >= self.scale[1]:
            raise ValueError(f"scale={list(self.scale)} must be [worst, best], with the best score greater")
        if self.rubric is not None and self.mode != "rubric":
            raise ValueError("rubric is set, but mode is not rubric")
        return self


class Judge(Component, kind="judge"):
    """Scores one trajectory at a time.

    Raises:
        ConfigError: the API key, the template, the rubric or the cache file cannot be used.
    """

    Config = JudgeConfig
    config: JudgeConfig

    def __init__(self, name: str, config: JudgeConfig) -> None:
        super().__init__(name, config)
        key = f"agent_rl.reward.components.{name}.config"
        self.panel = Panel(config, key, config.mode)
        self._scale = _scale(config, self.panel.template, key)
        self._criteria = load_rubric(config.rubric, f"{key}.rubric")
        self.logs = (*LOGS, *(f"criterion_{criterion.name}" for criterion in self._criteria))

    async def reach(self) -> None:
        """Check the endpoint, the API key and the model by requesting the endpoint's list of models."""
        await self.panel.client.check()

    async def measure(self, trajectory: Trajectory) -> Value:
        """Return the combined value of the votes, from 0 to 1.

        Raises:
            UnscoredError: there are too few verdicts, or the row lacks the ground truth or rubric that the mode needs.
            ConfigError: the endpoint rejects the API key, or has no such address or model.
        """
        criteria, ballot = self._rubric_of(trajectory), Ballot()
        verdicts = await self.panel.ask(self._question(with_judge_prompt(trajectory, self.name), criteria), ballot)
        scores = [self._scores(verdict, criteria) for verdict in verdicts]
        weights = [criterion.weight for criterion in criteria] or [1.0]
        values = [sum(map(float.__mul__, weights, vote)) / sum(weights) for vote in scores]
        logged = {name: float(getattr(ballot, name, 0)) for name in LOGS}
        logged |= {"votes": float(len(values)), "disagreement": max(values) - min(values)}
        for at, criterion in enumerate(self._criteria):
            logged[f"criterion_{criterion.name}"] = mean(vote[at] for vote in scores)
        notes = {"verdicts": [verdict.model_dump(mode="json") for verdict in verdicts]}
        return Value(aggregated(values, self.config.aggregate), logged, notes)

    def _question(self, trajectory: Trajectory, criteria: Sequence[Criterion]) -> Question:
        descriptions = {criterion.name: criterion.description for criterion in criteria}
        form = rubric_form(tuple(descriptions), *self._scale) if criteria else score_form(*self._scale)
        return Question(form, (trajectory,), self.config.max_chars, descriptions)

    def _rubric_of(self, trajectory: Trajectory) -> list[Criterion]:
        if self.config.mode != "rubric" or self._criteria:
            return self._criteria
        try:
            return read_rubric(trajectory.extra_info.get("rubric", trajectory.info.get("rubric")), Place("rubric"))
        except ConfigError as error:
            raise UnscoredError(f"row {trajectory.info.get('index')!r} has no usable rubric: {error}") from None

    def _scores(self, verdict: Any, criteria: Sequence[Criterion]) -> list[float]:
        """Return a verdict's score for each criterion, or its only score, scaled to the range 0 to 1."""
        low, high = self._scale
        scores = [verdict.scores[criterion.name] for criterion in criteria] or [verdict.score]
        return [(score - low) / (high - low) for score in scores]


def _scale(config: JudgeConfig, template: PromptTemplate, key: str) -> tuple[float, float]:
    """Return the scale of the prompt template's `score` or `scores` field, or else the configured scale.

    Raises:
        ConfigError: the configuration sets a scale that differs from the template's.
    """
    own = scale_of(template.template) if isinstance(template, ClassTemplate) else None
    if own is not None and "scale" in config.model_fields_set and own != config.scale:
        problem = f"the scale is {list(config.scale)}, but {config.template} scores from {own[0]:g} to {own[1]:g}"
        raise ConfigError(f"{key}.scale", problem, "Remove the key")
    return own or config.scale


def aggregated(values: Sequence[float], how: str) -> float:
    """Combine several votes into one value."""
    return median(values) if how == "median" else mean(multimode(values) if how == "majority" else values)


def read_rubric(data: Any, place: Place) -> list[Criterion]:
    """Convert a list of mappings to the criteria of a rubric.

    Raises:
        ConfigError: the data is not a rubric, or two criteria have the same name.
    """
    if not isinstance(data, list) or not data:
        raise place.error(f"expected a list of criteria, got {data!r:.80}", _RUBRIC)
    criteria = [validated(Criterion, item, place / number) for number, item in enumerate(data)]
    name, count = Counter(criterion.name for criterion in criteria).most_common(1)[0]
    if count > 1:
        raise place.error(f"the {name!r} criterion occurs twice", _RUBRIC)
    return criteria


def load_rubric(rubric: str | list[Any] | None, key: str) -> list[Criterion]:
    """Load a rubric's criteria from the configuration or a YAML file; the list is empty if each row has its own rubric.

    Raises:
        ConfigError: the file cannot be read, or the data is not a rubric.
    """
    if not isinstance(rubric, str):
        return [] if rubric is None else read_rubric(rubric, Place(key))
    file = Path(rubric).expanduser()
    with yaml_errors(file):
        data = yaml.safe_load(file.read_text("utf-8"))
    return read_rubric(data, Place(key, file))
