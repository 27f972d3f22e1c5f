"""The row contract: the columns of a data file that verl's data set, the agent loops and the rewards read.

    Row.model_validate({"data_source": "openai/gsm8k", "agent_name": "react_agent", ...})

`make_row` builds a row, `check_row` checks a row, and `agent_rl.data.storage` stores rows. The contract covers only the
form of a row, not whether its agent loop, tools or scorer exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from agent_rl.errors import ConfigError
from agent_rl.settings.errors import InvalidValueError, validated
from agent_rl.trajectory import Role

IMAGE, VIDEO = "<image>", "<video>"
"""Markers in a message's text; each marks the position of the row's next image or video."""


def _truth(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise InvalidValueError("the right answer is empty", "Provide the right answer")
    if isinstance(value, bool):
        raise InvalidValueError("the right answer is a boolean", "Write the answer as text, such as yes or no")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidValueError("the right answer is not a number", "Provide the right answer, or remove the row")
    return value


def _filled(text: str) -> str:
    if not text or text.isspace():
        raise InvalidValueError("the text is empty", "Write some text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError(f"UTF-8 cannot encode it ({error.reason})", "Remove unpaired surrogates") from error
    return text


Text = Annotated[str, AfterValidator(_filled)]


class PromptMessage(BaseModel):
    """A message of the prompt with which an episode starts."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Role
    content: Text
    """Text of the message, in which `<image>` and `<video>` mark the positions of the row's media."""

    @model_validator(mode="after")
    def _nothing_else(self) -> PromptMessage:
        further = sorted(key for key, value in (self.model_extra or {}).items() if value)
        if further:
            problem = f"a row cannot contain a message's {', '.join(further)}"
            raise InvalidValueError(problem, "Write such turns as text in content")
        return self


class RewardColumn(BaseModel):
    """The column that the reward reads; the scorer is selected by `data_source`, not by this column."""

    model_config = ConfigDict(strict=True, extra="allow")

    style: Text = "rule"
    """`rule`: a scorer compares the answer with the ground truth. `model` or `environment`: a reward model or the row's
    environment judges the answer, and ground_truth is optional."""
    ground_truth: Annotated[Any, AfterValidator(_truth)] = None
    """The right answer: text, or the list or mapping that the scorer documents; numbers are stored as text."""
    test_cases: Any = None
    """Additional tests for a submitted program, which your own scorers can use."""

    @model_validator(mode="after")
    def _has_truth(self) -> RewardColumn:
        if self.ground_truth is None and self.style not in ("model", "environment"):
            remedy = (
                "Set ground_truth to the right answer, or set style to model or environment for a row without an answer"
            )
            raise InvalidValueError("the row has no ground_truth", remedy)
        return self


class ExtraInfo(BaseModel):
    """Additional data of the row; you may add keys, and scorers get all keys as `extra_info`."""

    model_config = ConfigDict(strict=True, extra="allow")

    index: int | Text
    """Number or name of the row within its split; verl's `index` column."""
    split: Text | None = None
    """Name of the split, such as `train` or `test`, for traces and reports."""
    question: Text | None = None
    """The question without instructions."""
    tools_kwargs: dict[str, dict[str, Any] | None] | None = None
    """Arguments of the row's tools, `{tool: {"create_kwargs": {...}}}`; verl's `tools_kwargs` column."""
    need_tools_kwargs: bool | None = None
    """Whether verl warns about an empty `tools_kwargs`; `make_row` sets this flag."""
    tool_selection: Annotated[list[Text] | None, Field(min_length=1)] = None
    """Names of the only tools this row may use; None means all tools of the run."""
    interaction_kwargs: dict[str, Any] | None = None
    """verl's `interaction_kwargs` column, which only your own agents read."""
    user: dict[str, Any] | None = None
    """The data of the row's simulated user, for example its goal or its replies."""
    difficulty: float | None = None
    """Difficulty of the row: the share of failed attempts, 0 to 1, or a number on your own scale."""
    original_prompt: Any = None
    """The prompt that your scorer or reward function gets; None means the user's last message."""
    test_cases: Any = None
    """Additional tests for a submitted program, which your own scorers can use."""


class Row(BaseModel):
    """One row; verl keeps additional columns in files from other sources, but `write_parquet` rejects such columns."""

    model_config = ConfigDict(strict=True, extra="allow")

    data_source: Text
    """Name of the data set, which selects the scorer and groups metrics."""
    agent_name: Text | None = None
    """Name of the row's agent loop; if the column is missing, the run's default applies."""
    prompt: Annotated[list[PromptMessage], Field(min_length=1)]
    """The messages with which the episode starts; the last is a user message. The loop adds tools and instructions."""
    ability: Text | None = None
    """Label for the kind of task, used in statistics."""
    reward_model: RewardColumn
    extra_info: ExtraInfo
    images: list[Any] | None = None
    """One `{"bytes": ...}` or `{"path": ...}` for each `<image>` in the prompt."""
    videos: list[str] | None = None
    """One path for each `<video>` in the prompt."""
    rm_prompt: list[PromptMessage] | None = None
    """The prompt for judges and reward models; the `rm_prompt.<name>` key of `extra_info` is for one judge or model."""

    @model_validator(mode="after")
    def _turns_and_media(self) -> Row:
        if self.prompt[-1].role != "user":
            problem = f"the last message of the prompt is from {self.prompt[-1].role!r}"
            raise InvalidValueError(problem, "End the prompt with a user message")
        if not self.images and not self.videos:
            return self  # verl treats image and video markers as text if there are no media
        for mark, media in ((IMAGE, self.images), (VIDEO, self.videos)):
            marks = sum(message.content.count(mark) for message in self.prompt)
            if marks != len(media or ()):
                problem = f"the prompt has {marks} {mark} for {len(media or ())} {mark.strip('<>')}s"
                raise InvalidValueError(problem, f"Write one {mark} in the prompt for each image or video")
        return self


def check_row(row: Any, place: str) -> None:
    """Check one row against the contract.

    Args:
        row: the columns of the row.
        place: the row's file and number, for error messages.

    Raises:
        ConfigError: the row breaks the contract; the error names the location, column, value and remedy.
    """
    if not isinstance(row, Mapping):
        raise ConfigError(place, f"{row!r:.80} is not a mapping", "Build rows with make_row")
    for name, field in Row.model_fields.items():
        if field.is_required() and row.get(name) is None:
            problem = "the value is null" if name in row else "the column is missing"
            raise ConfigError(f"{place}, column {name}", problem, "Build rows with agent_rl.data.make_row")
    try:
        validated(Row, row)
    except ConfigError as error:
        where = f"{place}, column {error.key}" if error.key else place
        raise ConfigError(where, error.problem, error.remedy) from error


def check_rows(rows: Iterable[Any], *, source: str = "rows") -> None:
    """Check rows against the contract; row numbers in errors start at 0.

    Args:
        rows: rows from `make_row` or any other source.
        source: name of the rows in error messages, usually the file's path.

    Raises:
        ConfigError: a row breaks the contract, or `rows` is empty.
    """
    number = -1
    for number, row in enumerate(rows):
        check_row(row, f"{source}, row {number}")
    if number < 0:
        raise ConfigError(source, "there are no rows", "Check the source of the rows")
