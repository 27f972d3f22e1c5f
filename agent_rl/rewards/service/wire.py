"""Requests and answers of the reward service, as JSON.

A request is one item or `{"items": [...]}`; an item has verl's arguments of a reward function, or a whole trajectory as
`Trajectory.to_dict` gives it. Each item is answered by a `Scored`, or by an `Unscored`, which has no score.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from agent_rl.trajectory import SCHEMA_VERSION, Message, StopReason, Trajectory, Turn

__all__ = ["FORMS", "Answer", "Answers", "Arguments", "Batch", "Body", "Scored", "Unscored", "Whole"]

MAX_ITEMS = 4096


class Arguments(BaseModel):
    """The arguments that verl gives a reward function."""

    model_config = ConfigDict(extra="forbid")

    solution_str: str
    """The response's text, which is used as the answer."""
    data_source: str = ""
    ground_truth: Any = None
    extra_info: dict[str, Any] = Field(default_factory=dict)
    prompt: str | list[Message] = ""
    """The question, or the conversation before the response; a judge reads it."""

    def to_trajectory(self) -> Trajectory:
        """A trajectory of one turn with these values."""
        question = [Message("user", self.prompt)] if isinstance(self.prompt, str) and self.prompt else []
        return Trajectory(
            prompt=question if isinstance(self.prompt, str) else self.prompt,
            stop_reason=StopReason.ANSWERED,
            turns=[Turn(text=self.solution_str)],
            answer=self.solution_str,
            data_source=self.data_source,
            ground_truth=self.ground_truth,
            row={
                "data_source": self.data_source,
                "reward_model": {"ground_truth": self.ground_truth},
                "extra_info": self.extra_info,
            },
        )


class Whole(BaseModel):
    """A trajectory."""

    model_config = ConfigDict(extra="forbid")

    trajectory: Trajectory

    @field_validator("trajectory")
    @classmethod
    def _known_version(cls, trajectory: Trajectory) -> Trajectory:
        if trajectory.version != SCHEMA_VERSION:
            raise ValueError(f"version {trajectory.version} cannot be read: this service reads {SCHEMA_VERSION}")
        return trajectory


def _form(value: Any) -> str:
    """Which of `FORMS` a body has; pydantic then names the fields that are missing."""
    keys = value if isinstance(value, Mapping) else ()
    return "a batch" if "items" in keys else "a trajectory" if "trajectory" in keys else "arguments"


FORMS = ("arguments", "a trajectory", "a batch")
"""Tags that pydantic adds to the place of an error, in addition to the fields."""

Item = Annotated[
    Annotated[Arguments, Tag("arguments")] | Annotated[Whole, Tag("a trajectory")],
    Discriminator(_form),
]


class Batch(BaseModel):
    """Several items, answered in the same order."""

    model_config = ConfigDict(extra="forbid")

    items: list[Item] = Field(min_length=1, max_length=MAX_ITEMS)


Body = Annotated[
    Annotated[Arguments, Tag("arguments")] | Annotated[Whole, Tag("a trajectory")] | Annotated[Batch, Tag("a batch")],
    Discriminator(_form),
]


class Scored(BaseModel):
    """The reward of one item."""

    score: float
    components: dict[str, float]
    """What the score was computed from, unweighted."""
    logged: dict[str, float] = Field(default_factory=dict)
    """Further numbers."""
    notes: dict[str, Any] = Field(default_factory=dict)
    """The components' notes, for example a judge's reasons."""


class Unscored(BaseModel):
    """An item that could not be scored; this is not a score of 0."""

    unscored: Literal[True] = True
    error: str


Answer = Scored | Unscored


class Answers(BaseModel):
    """One answer for each item, in order."""

    items: list[Answer]
