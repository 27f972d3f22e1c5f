"""The JSON requests and answers of the reward service.

A request is one item or `{"items": [...]}`. An item contains the arguments that verl passes to a reward function, or a
whole trajectory from `Trajectory.to_dict`. The answer for an item is a `Scored` with the reward, or an `Unscored` with
the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator

from agent_rl.trajectory import SCHEMA_VERSION, Message, StopReason, Trajectory, Turn

MAX_ITEMS = 4096


class Arguments(BaseModel):
    """An item with the arguments that verl passes to a reward function."""

    model_config = ConfigDict(extra="forbid")

    solution_str: str
    """The text of the response, which is scored as the answer."""
    data_source: str = ""
    ground_truth: Any = None
    extra_info: dict[str, Any] = Field(default_factory=dict)
    prompt: str | list[Message] = ""
    """The question, or the conversation before the response; judges read it."""

    def to_trajectory(self) -> Trajectory:
        """Create a trajectory of one turn from the values of this item."""
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
    """An item with a whole trajectory."""

    model_config = ConfigDict(extra="forbid")

    trajectory: Trajectory

    @field_validator("trajectory")
    @classmethod
    def _check_version(cls, trajectory: Trajectory) -> Trajectory:
        if trajectory.version != SCHEMA_VERSION:
            raise ValueError(f"expected a trajectory of version {SCHEMA_VERSION}, got version {trajectory.version}")
        return trajectory


def _form(value: Any) -> str:
    """Return the tag in `FORMS` that matches a body, so that pydantic reports the missing fields of that form only."""
    keys = value if isinstance(value, Mapping) else ()
    return "a batch" if "items" in keys else "a trajectory" if "trajectory" in keys else "arguments"


FORMS = ("arguments", "a trajectory", "a batch")
"""Tags that tell the forms of a request body apart. Pydantic adds the tag, like the fields, to an error's location."""

_Item = Annotated[Arguments, Tag("arguments")] | Annotated[Whole, Tag("a trajectory")]


class Batch(BaseModel):
    """Several items, whose answers are returned in the same order."""

    model_config = ConfigDict(extra="forbid")

    items: list[Annotated[_Item, Discriminator(_form)]] = Field(min_length=1, max_length=MAX_ITEMS)


Body = Annotated[_Item | Annotated[Batch, Tag("a batch")], Discriminator(_form)]


class Scored(BaseModel):
    """The answer for a scored item, with its reward."""

    score: float
    components: dict[str, float]
    """The unweighted values from which the score was computed."""
    logged: dict[str, float] = Field(default_factory=dict)
    """Additional numbers to log."""
    notes: dict[str, Any] = Field(default_factory=dict)
    """Notes of the components, for example the reasons of a judge."""


class Unscored(BaseModel):
    """The answer for an item that could not be scored; the item has no score, rather than a score of 0."""

    unscored: Literal[True] = True
    error: str


Answer = Scored | Unscored


class Answers(BaseModel):
    """The answers to a batch: one per item, in the same order."""

    items: list[Answer]
