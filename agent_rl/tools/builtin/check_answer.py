"""`check_answer`: checks an answer before the policy submits it; each check has a step reward.

    tools:
      - name: check_answer
        config: {scorer: agent_rl.rewards.scorers.math.numeric.numeric_match}

The scorer is a function `(answer, ground_truth) -> float | bool` (1 means right); the row has the ground truth as
`extra_info.tools_kwargs.check_answer.create_kwargs.ground_truth`. An answer that is better than all earlier answers
earns the improvement times `improvement_reward`, a repeated answer costs `repeat_penalty`, and any other answer costs
`stall_penalty`. The policy sees the verdict, so without `max_checks` it can guess until it is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import Field

from agent_rl.errors import ConfigError, FatalError, UnscoredError
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.importing import find_object
from agent_rl.tools.base import Tool, ToolConfig, ToolOutput


class CheckAnswerConfig(ToolConfig):
    """The entry's `config`."""

    scorer: str
    """`package.module.function`, or `path/to/file.py:function`."""
    improvement_reward: float = Field(default=0.05, ge=0)
    repeat_penalty: float = Field(default=0.05, ge=0)
    stall_penalty: float = Field(default=0.0, ge=0)
    max_checks: int | None = Field(default=None, ge=1)
    """Maximum number of checks in one trajectory; null means no limit."""


class CheckAnswer(Tool):
    """Remembers this trajectory's answers and their best score."""

    name = "check_answer"
    Config = CheckAnswerConfig
    settings: CheckAnswerConfig
    description = (
        "Check an answer before you give it as the final one. Repeating an answer that was checked before is penalised."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The answer alone, for example 42"}},
        "required": ["answer"],
    }

    @classmethod
    def check_config(cls, config: Mapping[str, Any]) -> None:
        """Raise ConfigError for unknown keys, or a scorer that does not exist."""
        _scorer(validated(CheckAnswerConfig, config).scorer)

    async def start(self) -> None:
        """Read the ground truth from the row."""
        if "ground_truth" not in self.create_kwargs:
            raise FatalError(
                f"the row has no extra_info.tools_kwargs.{self.name}.create_kwargs.ground_truth. "
                "Add it in your preprocessing, or remove the tool from this row with extra_info.tool_selection"
            )
        self.scorer = _scorer(self.settings.scorer)
        self.seen: set[str] = set()
        self.checks = 0
        self.best = 0.0

    async def call(self, arguments: dict[str, Any]) -> ToolOutput:
        """Return the verdict and its reward."""
        limit = self.settings.max_checks
        if limit is not None and self.checks >= limit:
            return ToolOutput(f"All {limit} checks are used up. Give your final answer.", 0.0)
        self.checks += 1
        answer = " ".join(arguments["answer"].split())
        score = self._score(answer)
        verdict = "correct" if score >= 1 else "not correct" if score <= 0 else f"partly correct ({score:.2f} of 1)"
        text, reward = f"{answer!r} is {verdict}.", -self.settings.stall_penalty
        if answer in self.seen:
            text, reward = f"{answer!r} is {verdict}; you have checked it before.", -self.settings.repeat_penalty
        elif score > self.best:
            reward = (score - self.best) * self.settings.improvement_reward
        self.seen.add(answer)
        self.best = max(self.best, score)
        return ToolOutput(text, reward + 0.0, {"score": score})  # adding 0.0 turns -0.0 into 0.0

    def _score(self, answer: str) -> float:
        try:
            return float(self.scorer(answer, self.create_kwargs["ground_truth"]))
        except ValueError as error:
            raise UnscoredError(f"{self.settings.scorer} cannot judge with this row's ground truth: {error}") from error


def _scorer(path: str) -> Callable[[str, Any], float]:
    target: Any = find_object(path, Place("scorer"))
    if not callable(target):
        problem = f"{path!r} is a {type(target).__name__}, not a function"
        raise ConfigError("scorer", problem, "Use a function (answer, ground_truth) -> float")
    scorer: Callable[[str, Any], float] = target
    return scorer
