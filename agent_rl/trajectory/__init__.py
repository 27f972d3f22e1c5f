"""`Trajectory`: the record of one episode, as plain data.

The agent loop fills the trajectory, the reward reads it, and the trace stores it, so no later stage has to parse the
response text to find out what happened.

The records are standard dataclasses, whose properties only count and select values. `Trajectory.to_dict` and
`from_dict` (and `to_json` and `from_json`) convert to and from JSON. The `version` field identifies the schema; a
reader rejects an unknown version. Token ids are not part of a trajectory: a trace stores them in a separate file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, PlainSerializer, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

__all__ = [
    "LEFT_OUT",
    "SCHEMA_VERSION",
    "Message",
    "Role",
    "Score",
    "StopReason",
    "ToolCall",
    "ToolResult",
    "ToolStatus",
    "Trajectory",
    "Turn",
    "call_key",
    "plain",
    "plain_reward",
    "row_data",
]

SCHEMA_VERSION = 1
LEFT_OUT = "left_out"
"""Key in `Trajectory.info`; its value is true if training uses no part of the trajectory."""

Role = Literal["system", "user", "assistant", "tool"]

Images = Annotated[
    list[Any],
    PlainSerializer(lambda images: [image for image in images if isinstance(image, str)]),
    Field(exclude_if=lambda images: not any(isinstance(image, str) for image in images)),
]
"""Pillow images while an episode runs, and file names in JSON and in a trace (`agent_rl.trajectory.trace.images`)."""


class StopReason(str, Enum):
    """Why an episode ended. A trajectory has exactly one stop reason."""

    ANSWERED = "answered"
    """The policy gave its final answer."""
    MAX_TURNS = "max_turns"
    """The turn budget was spent without an answer."""
    MAX_TOOL_CALLS = "max_tool_calls"
    """The policy called a tool after its last allowed call."""
    MAX_TOKENS = "max_tokens"
    """The token budget was spent during a turn, or an observation did not fit into the rest of the budget."""
    MAX_SECONDS = "max_seconds"
    """The time budget was spent."""
    MALFORMED = "malformed"
    """The policy wrote too many malformed turns in a row."""
    REPETITION = "repetition"
    """The policy wrote too many turns in a row that only repeated earlier calls."""
    STOPPED = "stopped"
    """A hook ended the episode."""
    ENGINE_ERROR = "engine_error"
    """The inference engine failed, so the trajectory is unscored."""
    ERROR = "error"
    """The loop itself failed, so the trajectory is unscored; `Trajectory.error` contains the reason."""


class ToolStatus(str, Enum):
    """How one tool call ended."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    UNKNOWN_TOOL = "unknown_tool"
    INVALID_ARGUMENTS = "invalid_arguments"
    SKIPPED = "skipped"
    """The call was answered without being executed, for example because it exceeded the limit on parallel calls."""


@dataclass(slots=True)
class ToolCall:
    """One call that the policy made."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(slots=True)
class ToolResult:
    """The result of one call; the policy sees `text`."""

    call_id: str
    name: str
    text: str
    status: ToolStatus = ToolStatus.OK
    seconds: float = 0.0
    reward: float | None = None
    """A step reward that the tool itself assigned, if any."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """The tool's metrics, with `attempts` if the call was tried several times, and `cached` if the tool was not
    executed."""
    answer: str | None = None
    """The final answer, if the call ended the episode."""
    queue_seconds: float = 0.0
    """Seconds for which the call waited in a queue or for an equal call's result; `seconds` excludes this time."""
    images: Images = field(default_factory=list, compare=False)
    """Images that the policy sees before the text; `metrics` contains the number of images."""


@dataclass(slots=True)
class Message:
    """One chat message."""

    role: Role
    content: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str | None = None
    images: Images = field(default_factory=list, compare=False)

    @classmethod
    def from_chat(cls, message: Mapping[str, Any]) -> Message:
        """Convert a chat message to text and Pillow images; a part of another type becomes text such as `<audio>`."""
        content = message["content"]
        if isinstance(content, str):
            return cls(role=message["role"], content=content)
        parts = content or ()
        text = "".join(part["text"] if part["type"] == "text" else f"<{part['type']}>" for part in parts)
        images = [part["image"] for part in parts if hasattr(part.get("image"), "tobytes")]
        return cls(role=message["role"], content=text, images=images)


@dataclass(slots=True)
class Turn:
    """One assistant message and the environment's answer to it."""

    text: str
    """The assistant's sampled text, without special tokens unless the format reads them."""
    tokens: int = 0
    """Number of sampled tokens."""
    calls: list[ToolCall] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    malformed: str | None = None
    """The problem with the turn's format, or None if the turn is well-formed."""
    observation: str | None = None
    """The text of the environment's answer, or None after the last turn."""
    notes: dict[str, Any] = field(default_factory=dict)
    """JSON data that the agent stores about the turn, for example a plan."""
    generation_seconds: float = 0.0
    tool_seconds: float = 0.0
    """Seconds until the tools or a simulated user answered."""


@dataclass(slots=True)
class Score:
    """A total and the components from which it was computed."""

    total: float
    """The sum of each component's weight times its value."""
    components: dict[str, float] = field(default_factory=dict)
    """The unweighted value of each component, with the same keys for every trajectory."""
    weights: Annotated[dict[str, float], Field(exclude_if=lambda weights: not weights)] = field(
        default_factory=dict, compare=False
    )
    """Weights of the measured components, except components with a closed gate. The mapping is empty in traces of an
    older version, and if other code computed the score."""
    turn_rewards: Annotated[list[float], Field(exclude_if=lambda rewards: not any(rewards))] = field(
        default_factory=list, compare=False
    )
    """The part of the total that each turn earned, or an empty list if no turn earned a part."""


@dataclass(slots=True)
class Trajectory:
    """One episode, from the prompt to the stop reason.

    `info` contains the caller's data about the row (step, split, index, ...), as JSON data.
    """

    prompt: list[Message]
    stop_reason: StopReason
    turns: list[Turn] = field(default_factory=list)
    id: str = ""
    agent: str = ""
    data_source: str = ""
    ground_truth: Any = None
    answer: str | None = None
    """Text of the final answer, or None if the policy gave no answer."""
    error: str | None = None
    verdict: float | None = None
    """The judgment of the environment or of a simulated user, which is the value of the `correctness` component."""
    rewards: Annotated[dict[str, float], Field(exclude_if=lambda rewards: not rewards)] = field(default_factory=dict)
    """The parts of the environment's reward by name; each part is the value of a component of kind `environment`."""
    score: Score | None = None
    """The score of the trajectory; None before a reward is computed, and if the trajectory is unscored."""
    prompt_tokens: int = 0
    response_tokens: int = 0
    """Number of sampled and observation tokens in all conversations."""
    longest_tokens: int = 0
    """Response tokens in the longest conversation, to which the limit applies; 0 if there is only one conversation."""
    seconds: float = 0.0
    ended: float = field(default=0.0, compare=False)
    """Unix time when the episode ended, or 0 in traces of an older version."""
    row: dict[str, Any] = field(default_factory=dict)
    """The row's columns as `row_data` returns them: data_source, ability, reward_model, extra_info and others; empty
    in traces of an older version."""
    info: dict[str, Any] = field(default_factory=dict)
    version: int = SCHEMA_VERSION

    @property
    def extra_info(self) -> dict[str, Any]:
        """The row's `extra_info` column, or {} if the row has none."""
        return self.row.get("extra_info") or {}

    @property
    def results(self) -> list[ToolResult]:
        """All tool results, in order."""
        return [result for turn in self.turns for result in turn.results]

    @property
    def tool_calls(self) -> int:
        """Number of calls that the policy made, executed or not."""
        return sum(len(turn.calls) for turn in self.turns)

    @property
    def repeated_calls(self) -> int:
        """Number of calls that are equal to an earlier call, executed or not."""
        return self.tool_calls - len({call_key(call) for turn in self.turns for call in turn.calls})

    @property
    def tool_errors(self) -> int:
        """Number of failed calls."""
        return sum(result.status is not ToolStatus.OK for result in self.results)

    @property
    def malformed_turns(self) -> int:
        """Number of turns that the format could not parse."""
        return sum(turn.malformed is not None for turn in self.turns)

    @property
    def generation_seconds(self) -> float:
        """Seconds spent waiting for the engine."""
        return sum(turn.generation_seconds for turn in self.turns)

    @property
    def tool_seconds(self) -> float:
        """Seconds spent waiting for tools."""
        return sum(turn.tool_seconds for turn in self.turns)

    def to_dict(self) -> dict[str, Any]:
        """Convert the trajectory to JSON data (only str, int, float, bool, None, list, dict)."""
        data: dict[str, Any] = _adapter().dump_python(self, mode="json", fallback=as_json_type)
        return data

    def to_json(self) -> str:
        """Convert the trajectory to one line of JSON."""
        return _adapter().dump_json(self, fallback=as_json_type).decode()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Trajectory:
        """Create a trajectory from the data that `to_dict` returned.

        Raises:
            ValueError: the data has another schema version or is not a trajectory.
        """
        version = data.get("version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"trajectory version {version!r} cannot be read; agent_rl reads version {SCHEMA_VERSION}")
        try:
            return _adapter().validate_python(data)
        except ValidationError as error:
            raise ValueError(f"not a trajectory: {error}") from error

    @classmethod
    def from_json(cls, line: str | bytes) -> Trajectory:
        """Create a trajectory from a line that `to_json` returned.

        Raises:
            ValueError: the JSON is broken, has another schema version, or is not a trajectory.
        """
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError(f"not a trajectory: expected a JSON object, got {type(data).__name__}")
        return cls.from_dict(data)


def call_key(call: ToolCall) -> str:
    """Return a key that is the same for equal calls, regardless of the order of their arguments."""
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True, separators=(',', ':'), default=repr)}"


def plain(what: str, value: Any) -> Any:
    """Return the value as JSON data; numpy and torch numbers and arrays become Python numbers and lists.

    Raises:
        ValueError: the value is not JSON data; the message starts with `what`.
    """
    try:
        return to_jsonable_python(value, fallback=as_json_type)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}") from error


def plain_reward(what: str, value: Any) -> float | None:
    """Return a step reward or a verdict as a Python number.

    Raises:
        ValueError: the value is not a finite number; a trace and a reward worker would read it as null.
    """
    number: float | None = plain(what, value)
    if number is not None and not (type(number) in (int, float) and math.isfinite(number)):
        raise ValueError(f"{what} is {value!r}, not a finite number")
    return number


def as_json_type(value: Any) -> Any:
    """Convert a numpy value or a mapping to Python's own types; any other value raises TypeError."""
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a JSON type")


_OTHER_COLUMNS = (
    *("prompt", "raw_prompt", "images", "videos", "audios"),  # columns that are too large, or already in the trajectory
    *("uid", "session_id", "global_steps", "index", "tools_kwargs", "interaction_kwargs"),  # verl adds these columns
)


def row_data(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row as JSON data, except the prompt, the media, and the columns that verl adds.

    Arrays become lists, and dates become strings; values that JSON cannot represent are left out.
    """
    data = _as_json({name: value for name, value in columns.items() if name not in _OTHER_COLUMNS})
    return {name: value for name, value in data.items() if value is not _DROPPED}


_DROPPED = object()


def _as_json(value: Any) -> Any:
    """Return the value as JSON data, or `_DROPPED`."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value).__module__ == "numpy":
        return _as_json(value.tolist())
    if isinstance(value, Mapping):
        items = ((str(key), _as_json(item)) for key, item in value.items())
        return {key: item for key, item in items if item is not _DROPPED}
    if isinstance(value, list | tuple | set):
        return [item for item in map(_as_json, value) if item is not _DROPPED]
    return str(value) if isinstance(value, date | time | Decimal | UUID) else _DROPPED


@cache
def _adapter() -> TypeAdapter[Trajectory]:
    return TypeAdapter(Trajectory)
