"""`Judge`: a model scores each trajectory, by itself, against the ground truth, or by a rubric.

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

The value is where the score stands on its scale, from 0 (worst) to 1 (best). A trajectory without enough verdicts is
unscored. What this does not promise: that a judge cannot be persuaded. Read its reasons in the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean, median
from typing import Any, Literal

from pydantic import Field, model_validator

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.component import Component, Value
from agent_rl.rewards.judge import shown
from agent_rl.rewards.judge.fence import Fence
from agent_rl.rewards.judge.panel import Ballot, Panel, PanelConfig, Question
from agent_rl.rewards.judge.rubric import Criterion, as_text, load_rubric, read_rubric, weighted
from agent_rl.rewards.judge.template import load_template
from agent_rl.rewards.judge.verdict import VerdictForm, rubric_form, score_form
from agent_rl.trajectory import Trajectory

__all__ = ["Judge", "JudgeConfig"]

PLACEHOLDERS = ("question", "answer", "transcript", "reference", "rubric")
NEEDED: dict[str, list[tuple[str, ...]]] = {
    "pointwise": [("answer", "transcript")],
    "reference": [("answer", "transcript"), ("reference",)],
    "rubric": [("answer", "transcript"), ("rubric",)],
}
LOGS = ("votes", "failures", "disagreement", "calls", "tokens", "cache_hits")


class JudgeConfig(PanelConfig):
    """`config` of a component of kind `judge`."""

    mode: Literal["pointwise", "reference", "rubric"] = "pointwise"
    """`reference`: the ground truth is shown. `rubric`: a score for each criterion."""
    scale: tuple[float, float] = (0.0, 10.0)
    """Worst and best score; whole numbers are asked for on a scale wider than 1."""
    rubric: str | list[Any] | None = None
    """Criteria, or a YAML file that lists them; null: each trajectory has its own, `info["rubric"]`."""
    aggregate: Literal["mean", "median", "majority"] = "mean"
    """What several votes come to; majority: the most frequent one, of several such their mean."""
    no_answer: float | None = Field(default=None, ge=0, le=1)
    """The value of a trajectory without a final answer, about which the judge is not asked; null: it is asked."""

    @model_validator(mode="after")
    def _goes_together(self) -> JudgeConfig:
        if self.scale[0] >= self.scale[1]:
            raise ValueError(f"scale={list(self.scale)} must go from the worst score up to the best")
        if self.rubric is not None and self.mode != "rubric":
            raise ValueError("rubric needs mode=rubric")
        return self


class Judge(Component):
    """Asks about one trajectory at a time.

    Raises:
        ConfigError: the API key, the template, the rubric or the cache's file cannot be used.
    """

    Config = JudgeConfig
    config: JudgeConfig

    def __init__(self, name: str, config: JudgeConfig) -> None:
        super().__init__(name, config)
        key = f"agent_rl.reward.components.{name}.config"
        self._template = load_template(
            config.template, config.mode, f"{key}.template", PLACEHOLDERS, NEEDED[config.mode]
        )
        self._criteria = self._own_rubric(f"{key}.rubric")
        self._form = score_form(*config.scale)
        self.panel = Panel(config, key)
        self.logs = (*LOGS, *(f"criterion_{each.name}" for each in self._criteria))

    async def measure(self, trajectory: Trajectory) -> Value:
        """The value of the votes, from 0 to 1.

        Raises:
            UnscoredError: too few verdicts, or a row that lacks what the mode needs.
            ConfigError: the endpoint answers nobody.
        """
        if trajectory.answer is None and self.config.no_answer is not None:
            value = self.config.no_answer
            return Value(value, {log: 0.0 if log in LOGS else value for log in self.logs})
        criteria = self._rubric_of(trajectory)
        form = rubric_form(tuple(each.name for each in criteria), *self.config.scale) if criteria else self._form
        ballot = await self.panel.ask(self._question(trajectory, criteria, form))
        scores = [self._scores(verdict, criteria) for verdict in ballot.verdicts]
        values = [weighted(criteria, each) if criteria else each[0] for each in scores]
        logged = _logged(ballot, values)
        for at, criterion in enumerate(self._criteria):
            logged[f"criterion_{criterion.name}"] = mean(each[at] for each in scores)
        return Value(
            aggregated(values, self.config.aggregate),
            logged,
            {"verdicts": [verdict.model_dump(mode="json", by_alias=True) for verdict in ballot.verdicts]},
        )

    async def close(self) -> None:
        """Let go of the cache's file."""
        self.panel.close()

    def _own_rubric(self, key: str) -> list[Criterion]:
        rubric = self.config.rubric
        if isinstance(rubric, str):
            return load_rubric(rubric, key)
        try:
            return [] if rubric is None else read_rubric(rubric)
        except ValueError as error:
            raise ConfigError(key, str(error), "Mend the rubric") from None

    def _rubric_of(self, trajectory: Trajectory) -> list[Criterion]:
        if self.config.mode != "rubric" or self._criteria:
            return self._criteria
        try:
            return read_rubric(trajectory.info.get("rubric"))
        except ValueError as error:
            raise UnscoredError(f"row {trajectory.info.get('index')!r} has no rubric to judge by: {error}") from None

    def _question(self, trajectory: Trajectory, criteria: Sequence[Criterion], form: VerdictForm) -> Question:
        names, limit = self._template.names, self.config.max_chars
        if "reference" in names and trajectory.ground_truth is None:
            raise UnscoredError(f"row {trajectory.info.get('index')!r} has no ground truth to show the judge")

        def values(fence: Fence) -> dict[str, str]:
            fill: dict[str, Any] = {
                "question": lambda: shown.question(trajectory, fence, limit),
                "answer": lambda: fence.around("answer", shown.answer(trajectory, limit)),
                "transcript": lambda: shown.transcript(trajectory, fence, limit),
                "reference": lambda: fence.around("reference", shown.reference(trajectory, limit)),
                "rubric": lambda: as_text(criteria),
            }
            return {name: fill[name]() for name in names}

        return Question(self._template, values, form)

    def _scores(self, verdict: Any, criteria: Sequence[Criterion]) -> list[float]:
        """Of each criterion, or the only one, from 0 to 1."""
        low, high = self.config.scale
        given = [getattr(verdict.scores, f"criterion_{at}") for at in range(len(criteria))] or [verdict.score]
        return [(score - low) / (high - low) for score in given]


def aggregated(values: Sequence[float], how: str) -> float:
    """One value of several."""
    if how == "majority":
        counts = Counter(values)
        return mean(value for value, count in counts.items() if count == max(counts.values()))
    return median(values) if how == "median" else mean(values)


def _logged(ballot: Ballot, values: Sequence[float]) -> dict[str, float]:
    numbers = (len(values), ballot.failures, max(values) - min(values), ballot.calls, ballot.tokens, ballot.cache_hits)
    return {name: float(number) for name, number in zip(LOGS, numbers, strict=True)}
