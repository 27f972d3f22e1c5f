"""Environments from packages that need a separate Python: a process that runs this Python serves each package.

    class_of("bfcl", "TicketAPI+TravelAPI")  # a subclass of Environment, whose methods send requests to the process

Each agent-loop worker has one process per family, which keeps the sessions of the worker's trajectories and answers one
request after the other. A process that answers too late is killed. A session's next request starts another process and
first repeats the session's earlier requests; if an answer then differs, the trajectory is unscored.
"""

from __future__ import annotations

import inspect
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from agent_rl.environments import serve
from agent_rl.environments.environment import Environment
from agent_rl.environments.install import python_of
from agent_rl.environments.kind import OWN
from agent_rl.environments.session import MESSAGE
from agent_rl.errors import ConfigError, ToolError, UnscoredError
from agent_rl.sandbox.workers import WorkerDied, Workers, WorkerTimeout

REQUEST_S = 20.0
"""Time limit for one request in seconds; shorter than a tool's usual limit, because other requests wait."""


class Process:
    """The process of a family; a request starts the process if it is not running.

    Args:
        family: name of a module of `agent_rl.environments.families`.

    Raises:
        ConfigError: the family's Python does not exist.
    """

    def __init__(self, family: str) -> None:
        self.family = family
        file = Path(__file__).with_name("families") / f"{family}.py"
        command = [str(python_of(family)), "-I", serve.__file__, str(file)]
        self._workers = Workers(f"runs environments of {family}", command, kept=1)
        self._lock = threading.Lock()
        self.ended: deque[str] = deque()
        """Keys of the sessions to close. The garbage collector appends keys, because it must not wait for the lock."""

    def ask(self, key: str | None, method: str, *arguments: Any) -> Any:
        """Call a method of a session, or a function of the family if `key` is None, and return the result.

        Raises:
            LookupError: the process does not have the session.
            ValueError: the family rejected the arguments.
            ToolError: a call failed with an error that the policy may read.
            UnscoredError: the process did not answer.
            RuntimeError: the family raised any other exception; the error names the line.
        """
        with self._lock:
            ended = [self.ended.popleft() for _ in range(len(self.ended))]
            try:
                answer = self._workers.ask([key, method, arguments, ended], REQUEST_S)
            except (WorkerTimeout, WorkerDied) as error:
                raise UnscoredError(f"{self.family}: {method}{arguments!r:.200}: {error}") from error
        if answer[0] == "lost":
            raise LookupError(key)
        if answer[0] == "raised":
            _, kind, text, place = answer
            errors: dict[str, type[Exception]] = {"CallError": ToolError, "ValueError": ValueError}
            raise errors[kind](text) if kind in errors else RuntimeError(f"{self.family}: {kind}: {text} ({place})")
        return answer[1]

    @staticmethod
    @cache
    def of(family: str) -> Process:
        """Return the `Process` for a family; all callers in the current process share it."""
        return Process(family)


class _Session:
    """A session in a family's process; its requests can be repeated in another process."""

    def __init__(self, process: Process) -> None:
        self._process, self._key = process, uuid.uuid4().hex
        self._history: list[tuple[str, tuple[Any, ...], Any]] = []
        weakref.finalize(self, process.ended.append, self._key)

    def ask(self, method: str, *arguments: Any) -> Any:
        try:
            result = self._process.ask(self._key, method, *arguments)
        except LookupError:
            for before, values, expected in self._history:
                if self._process.ask(self._key, before, *values) != expected:
                    problem = f"its process restarted, and {before} returned a different result than before"
                    raise UnscoredError(f"{self._process.family}: {problem}") from None
            result = self._process.ask(self._key, method, *arguments)
        self._history.append((method, arguments, result))
        return result


class ServedEnvironment(Environment):
    """Base class for the classes that `class_of` creates."""

    process: ClassVar[Process]
    identifier: ClassVar[str]
    _session: _Session

    def rows(self, split: str, seed: int) -> Iterable[Mapping[str, Any]]:
        """Yield the family's rows."""
        rows: list[dict[str, Any]] = self.process.ask(None, "rows", self.identifier, split, seed)
        return rows

    def reset(self, **row: Any) -> str | None:
        """Open a session for the row."""
        self._session = _Session(self.process)
        text: str | None = self._session.ask("open", self.identifier, row)
        return text

    def get_reward(self) -> float | Mapping[str, float]:
        """Return the reward that the family gives for the answer, or for all messages to a simulated user."""
        answer = self.answer
        if messages := [turn.notes[MESSAGE] for turn in self.trajectory.turns if MESSAGE in turn.notes]:
            answer = None if self.trajectory.answer is None else "\n".join(messages)
        reward: float | dict[str, float] = self._session.ask("reward", answer)
        return reward

    def _step(self, message: str) -> str | None:
        text: str | None = self._session.ask("step", message)
        return text

    def _solve(self) -> str | None:
        calls, answer = self._session.ask("solution")
        for name, arguments in calls:
            getattr(self, name)(**arguments)
        return str(answer)


def class_of(family: str, identifier: str) -> type[Environment]:
    """Return the class of an environment, whose methods are the functions that the family describes.

    The family's `describe(id)` returns `system` (the system message), `tools` (with name, description and parameters),
    and `methods` (the methods among `step` and `solve` that the environment defines).

    Raises:
        ConfigError: the family's Python does not exist, the family does not contain the environment, or the name of a
            tool is reserved.
    """
    process = Process.of(family)
    try:
        about = process.ask(None, "describe", identifier)
    except ValueError as error:
        raise ConfigError(f"{family}:{identifier}", str(error), "Name another environment") from error
    for name in (tool["name"] for tool in about["tools"]):
        if name in OWN or name.startswith("_"):
            problem = f"agent_rl cannot offer its tool {name!r}, because the name is reserved"
            raise ConfigError(f"{family}:{identifier}", problem, "Rename the tool")
    own = {"step": ServedEnvironment._step, "solve": ServedEnvironment._solve}
    space: dict[str, Any] = {name: own[name] for name in about["methods"]}
    space |= {tool["name"]: _method(tool) for tool in about["tools"]}
    space |= {"__doc__": about["system"], "__module__": f"{serve.__package__}.families.{family}"}
    return type(family, (ServedEnvironment,), {**space, "process": process, "identifier": identifier})


def _method(tool: Mapping[str, Any]) -> Callable[..., Any]:
    def method(self: ServedEnvironment, /, **arguments: Any) -> str:
        text, self.done = self._session.ask("call", tool["name"], arguments)
        return str(text)

    required, own = tool["parameters"].get("required", ()), inspect.Parameter
    defaults = {name: own.empty if name in required else None for name in tool["parameters"].get("properties", ())}
    parameters = [own(name, own.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    signature = inspect.Signature([own("self", own.POSITIONAL_ONLY), *parameters])
    method.__signature__, method.schema = signature, dict(tool)  # type: ignore[attr-defined]
    return method
