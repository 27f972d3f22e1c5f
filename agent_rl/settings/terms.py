"""The keys that all sections under `agent_rl.reward` share, which set how a component enters the reward."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from agent_rl.settings.errors import InvalidValueError
from agent_rl.settings.section import Section

Normalization = Literal["group", "sigmoid", "tanh"] | Annotated[list[float], Field(min_length=2, max_length=2)]
_COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}

_CONDITION = re.compile(
    r"\s*(?P<name>[\w.-]+)\s*(?P<how>>=|<=|==|!=|>|<)\s*(?P<number>[-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*"
)


class Condition(NamedTuple):
    """One comparison of a gate: `holds(value, number)` for the component's value."""

    name: str
    holds: Callable[[float, float], bool]
    number: float


Gate = tuple[Condition, ...]


class Schedule(Section):
    """A weight that changes linearly from `start` to `end` between two training steps, and then stays at `end`."""

    start: float
    """Weight up to `from_step`."""
    end: float
    """Weight from `to_step` onward, and in offline scoring, which has no training steps."""
    to_step: int = Field(ge=1)
    """Training step at which the weight reaches `end`."""
    from_step: int = Field(default=0, ge=0)
    """Training step at which the weight starts to change."""

    @model_validator(mode="after")
    def _ordered(self) -> Schedule:
        if self.to_step <= self.from_step:
            problem = f"to_step={self.to_step} is not after from_step={self.from_step}"
            raise InvalidValueError(problem, "Set a later to_step")
        return self

    def at(self, step: int | None) -> float:
        """Return the weight at a training step; None means the final weight."""
        if step is None or step >= self.to_step:
            return self.end
        share = max(0.0, (step - self.from_step) / (self.to_step - self.from_step))
        return self.start + share * (self.end - self.start)


class TermSettings(Section):
    """Settings for how a component enters the total reward."""

    weight: float | Schedule = 1.0
    """Factor of the value in the total, or a mapping for a schedule over training steps. With 0, the component is only
    measured and logged."""
    normalize: Normalization | None = None
    """How the value is scaled before clipping. `[low, high]` maps this range to 0 to 1. `group` takes the z-score
    among the samples of the prompt. `sigmoid` and `tanh` apply these functions."""
    clip: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None
    """Range `[low, high]` to which the value is clipped."""
    gate: str | None = None
    """Condition under which the component is measured, for example `correctness >= 1 and format == 0`."""

    @field_validator("normalize", "clip")
    @classmethod
    def _ordered(cls, value: Any) -> Any:
        if isinstance(value, list) and not value[0] < value[1]:
            raise InvalidValueError("the first number must be below the second", "Write [low, high]")
        return value

    @field_validator("gate")
    @classmethod
    def _parses(cls, value: str | None) -> str | None:
        parse_gate(value)
        return value

    def weight_at(self, step: int | None) -> float:
        """Return the weight at a training step."""
        return self.weight.at(step) if isinstance(self.weight, Schedule) else self.weight


class ComponentSettings(TermSettings):
    """A component in addition to the components that every reward has."""

    kind: str
    """A built-in kind, or your subclass in the form `package.module.Class` or `file.py:Class`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Settings for a component of this kind."""


def parse_gate(text: str | None) -> Gate:
    """Parse a gate into its conditions, all of which must be met.

    Raises:
        ValueError: the text does not consist of comparisons such as `name >= number`, joined by `and`.
    """
    conditions = []
    for part in [] if text is None else re.split(r"\band\b", text):
        match = _CONDITION.fullmatch(part)
        if match is None:
            remedy = "Write a comparison such as `correctness >= 1`, and join several with `and`"
            raise InvalidValueError(f"{part.strip()!r} is not a comparison of a component with a number", remedy)
        conditions.append(Condition(match["name"], _COMPARISONS[match["how"]], float(match["number"])))
    return tuple(conditions)
