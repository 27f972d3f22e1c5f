"""`Cassette`: the tool calls of a run on file, and a replay that executes no tool.

A recording appends one JSON line for each call: the call, the earlier calls that it depends on, and the result before
it was cut for the policy. A replay answers the same calls with the same results, seconds included. Two calls are the
same when tool, arguments and the row's `create_kwargs` agree, and, unless the tool is reusable, the trajectory's
earlier calls of tools that are not. What was recorded several times is replayed in its order, and then again from the
first; records with the trajectory's own label come first, which keeps a replay deterministic while trajectories run at
the same time.

Secrets are taken out before anything is compared or written: values under names such as `api_key` or `password`, the
values of environment variables with names that end in KEY, TOKEN, SECRET or PASSWORD, and what looks like a key in any
text (`agent_rl.secrets.Redactor`). What is recorded is also what the policy is shown, so that a replay is equal. A turn
in which a tool raises `UnscoredError` or `FatalError` is not recorded: its trajectory has no result. A replay holds the
whole file in memory.
"""

from __future__ import annotations

import copy
import difflib
import json
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from agent_rl.errors import ConfigError, FatalError
from agent_rl.secrets import Redactor
from agent_rl.tools.cache import canonical_json, digest
from agent_rl.tools.spec import ToolSpec
from agent_rl.trace import append_lines
from agent_rl.trajectory import ToolCall, ToolResult, ToolStatus

__all__ = ["Cassette", "CassetteMissError", "Tape"]

_VERSION = 1
_SETTING = "agent_rl.tools.cassette.path"
_MAX_COMPARED = 200  # records that the search for the nearest one looks at
_MAX_SHOWN = 400  # characters of arguments in an error


class CassetteMissError(FatalError):
    """The cassette does not have a call that a replay needs."""


@dataclass(frozen=True, slots=True)
class _Call:
    """What makes two calls the same."""

    tool: str
    arguments: Any
    create_kwargs: str
    history: str

    def key(self) -> str:
        return digest(canonical_json([self.tool, self.arguments, self.create_kwargs, self.history]))

    def shown(self) -> str:
        text = f"{self.tool} {canonical_json(self.arguments)}"
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


@dataclass(frozen=True, slots=True)
class _Answer:
    """A `ToolResult` without what belongs to the call."""

    text: str
    status: ToolStatus
    seconds: float
    queue_seconds: float
    reward: float | None
    metrics: dict[str, Any]
    answer: str | None

    def result(self, call: ToolCall) -> ToolResult:
        values = {name: getattr(self, name) for name in self.__slots__}
        return ToolResult(call.id, call.name, **{**values, "metrics": copy.deepcopy(self.metrics)})


@dataclass(frozen=True, slots=True)
class _Record:
    """One line of the file."""

    version: int
    scope: str | None
    call: _Call
    result: _Answer


class Cassette:
    """A file of tool calls, to record or to replay; made once for all trajectories of a process.

    Use `Cassette.record(path)` or `Cassette.replay(path)`.
    """

    def __init__(self, path: Path, records: Iterable[_Record] | None) -> None:
        self.path = path
        self.scope: str | None = None
        self.replays = records is not None
        """Whether calls are answered from the file."""
        self.redact = Redactor(os.environ)
        self._records: dict[tuple[str, str | None], list[_Record]] = defaultdict(list)
        self._taken: dict[tuple[str, str | None], int] = defaultdict(int)
        """How far each list of equal calls has been replayed."""
        for record in records or ():
            for scope in {None, record.scope}:
                self._records[record.call.key(), scope].append(record)

    @classmethod
    def record(cls, path: str | os.PathLike[str]) -> Cassette:
        """A cassette that appends to the file, which many processes of one machine may do at once.

        Raises:
            ConfigError: when the file cannot be written.
        """
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with open(path, "ab"):
                pass
        except OSError as error:
            raise ConfigError(_SETTING, f"{path} cannot be written: {error}", "Name a file that can be") from error
        return cls(Path(path), None)

    @classmethod
    def replay(cls, path: str | os.PathLike[str]) -> Cassette:
        """A cassette that answers from the file.

        Raises:
            ConfigError: when the file cannot be read, or naming the line that cannot.
        """
        return cls(Path(path), _read(Path(path)))

    def scoped(self, scope: str) -> Cassette:
        """The same cassette, for the trajectory that has this label in the recording and in the replay."""
        scoped = copy.copy(self)
        scoped.scope = scope
        return scoped

    def _take(self, call: _Call) -> _Answer:
        key = call.key()
        place = (key, self.scope if (key, self.scope) in self._records else None)
        if place not in self._records:
            raise CassetteMissError(
                f"{self.path} has no recorded call {call.shown()}. {self._nearest(call)} Record the run again "
                "(agent_rl.tools.cassette.mode=record and another path), or replay what was recorded: the same rows, "
                "tools and turns"
            )
        records = self._records[place]
        self._taken[place] += 1
        return records[(self._taken[place] - 1) % len(records)].result

    def _nearest(self, call: _Call) -> str:
        """The most similar recorded call, and the difference."""
        calls = [records[0].call for (_, scope), records in self._records.items() if scope is None]
        if not calls:
            return "Nothing is recorded."
        for known in calls:
            if (known.tool, known.arguments) == (call.tool, call.arguments):
                changed = "create_kwargs" if known.create_kwargs != call.create_kwargs else "earlier calls"
                return f"It was recorded with other {changed}."
        same_tool = [known for known in calls if known.tool == call.tool] or calls
        texts = [known.shown() for known in same_tool[:_MAX_COMPARED]]
        return f"The nearest is {difflib.get_close_matches(call.shown(), texts, n=1, cutoff=0.0)[0]}."

    def _keep(self, calls: Sequence[_Call], results: Sequence[ToolResult]) -> list[_Answer]:
        if tools := ", ".join(result.name for result in results if result.images):
            raise FatalError(f"a result of {tools} cannot be recorded: it has images")
        lines = [self._line(call, result) for call, result in zip(calls, results, strict=True)]
        try:
            append_lines(self.path, b"".join(lines))
        except OSError as error:
            raise FatalError(f"{_SETTING}: {self.path} cannot be written any more: {error}") from error
        return [_parse(line).result for line in lines]

    def _line(self, call: _Call, result: ToolResult) -> bytes:
        answer = {name: getattr(result, name) for name in _Answer.__slots__}
        record = {"version": _VERSION, "scope": self.scope, "call": asdict(call), "result": self.redact(answer)}
        return json.dumps(record).encode() + b"\n"


class Tape:
    """The calls of one trajectory, from its first."""

    def __init__(self, cassette: Cassette, specs: Iterable[ToolSpec], tools_kwargs: Mapping[str, Any]) -> None:
        self._cassette = cassette
        self._stateful = {spec.name for spec in specs if not spec.may_be_reused}
        redacted = {name: cassette.redact(tools_kwargs.get(name)) for name in tools_kwargs}
        self._create_kwargs = {name: digest(canonical_json(value)) for name, value in redacted.items() if value}
        self._history = ""

    async def turn(
        self, calls: Sequence[ToolCall], answer: Callable[[], Awaitable[list[ToolResult]]]
    ) -> list[ToolResult]:
        """The results of one turn's calls: from the file, or else from `answer` and then recorded.

        Raises:
            CassetteMissError: for a call that is not on the cassette.
            FatalError: when the file cannot be written any more.
        """
        made = [self._call(call) for call in calls]
        if self._cassette.replays:
            answers = [self._cassette._take(call) for call in made]
        else:
            answers = self._cassette._keep(made, await answer())
        return [given.result(call) for given, call in zip(answers, calls, strict=True)]

    def _call(self, call: ToolCall) -> _Call:
        redact = self._cassette.redact
        stateful = call.name in self._stateful
        history = self._history if stateful else ""
        made = _Call(redact(call.name), redact(call.arguments), self._create_kwargs.get(call.name, ""), history)
        if stateful:
            self._history = made.key()
        return made


def _read(path: Path) -> Iterator[_Record]:
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield _parse(line)
                except ValueError as error:
                    remedy = "Delete the line, which a killed run may leave behind, or record again"
                    raise ConfigError(f"{path}, line {number}", str(error), remedy) from error
    except OSError as error:
        raise ConfigError(_SETTING, f"{path} cannot be read: {error}", "Name a file that was recorded") from error


def _parse(line: bytes) -> _Record:
    """A line as a record; ValueError when it is none."""
    try:
        data = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    version = data.get("version") if isinstance(data, dict) else None
    if version != _VERSION:
        raise ValueError(f"cassette version {version!r} cannot be read: this agent_rl reads {_VERSION}")
    try:
        return _adapter().validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"not a recorded call: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


@cache
def _adapter() -> TypeAdapter[_Record]:
    return TypeAdapter(_Record)
