"""Classifies exceptions from the user's code (tools, hooks, users, components, scorers) in the same way everywhere.

- `UnscoredError`, a timeout or a failed connection is an outage (`is_outage`), which leaves the trajectory unscored.
- A `FatalError` stops the run.
- Any other exception is a bug in the user's code and never reduces the policy's reward. The bug becomes a
  `UserCodeError` with the line of the user's file or, during an episode, a `BrokenCallError`, which leaves the
  trajectory unscored. `RepeatedBugs` stops the run if the same bug occurs too often.
"""

from __future__ import annotations

import hashlib
import inspect
import site
import sysconfig
import traceback
from collections import Counter
from http import HTTPStatus
from pathlib import Path
from typing import Any

from agent_rl.errors import AgentRLError, FatalError, UnscoredError

MAX_REPEATS = 8
"""Number of occurrences of a bug after which the run stops."""

_INSTALLED = [path for name, path in sysconfig.get_paths().items() if name != "data"]  # a project may be in `data`
_NOT_THE_USERS = ("<", *(f"{path}/" for path in (*_INSTALLED, *site.getsitepackages(), Path(__file__).parents[1])))

_OUTAGES = {
    ("aiohttp", "ClientConnectionError"),
    ("http", "HTTPException"),
    ("httpcore", "NetworkError"),
    ("httpcore", "TimeoutException"),
    ("httpx", "TransportError"),
    ("openai", "APIConnectionError"),
    ("requests", "ConnectionError"),
    ("requests", "Timeout"),
    ("socket", "gaierror"),
    ("subprocess", "TimeoutExpired"),
    ("urllib", "URLError"),
    ("urllib3", "HTTPError"),
    ("websockets", "ConnectionClosed"),
}
"""Packages and names of connection errors and timeouts that derive from neither ConnectionError nor TimeoutError."""


class UserCodeError(FatalError):
    """The user's code raised an exception that is neither an outage nor an error of agent_rl.

    Args:
        what: the call, for example `component politeness` or `tool search: start`.
        place: file and line in the user's code.
        problem: the exception, on one line.
        trace: the traceback, for the log.
        remedy: advice for the user, for example the command that repeats the call.
    """

    def __init__(self, what: str, place: str, problem: str, trace: str, remedy: str = "") -> None:
        super().__init__(f"{what} failed at {place}: {problem}" + (f". {remedy}" if remedy else ""))
        self.what, self.place, self.problem, self.trace, self.remedy = what, place, problem, trace, remedy

    def __reduce__(self) -> tuple[Any, ...]:  # for pickle, which passes the error to another process
        return type(self), (self.what, self.place, self.problem, self.trace, self.remedy)

    @classmethod
    def of(cls, what: str, error: BaseException, remedy: str = "", code: Any = None) -> UserCodeError:
        """Make an error whose cause is the exception that the user's code raised.

        Args:
            what: see `UserCodeError`.
            error: the exception.
            remedy: see `UserCodeError`.
            code: see `place_of`.
        """
        trace = "".join(traceback.format_exception(error))
        wrapper = cls(what, place_of(error, code), one_line(error), trace, remedy)
        wrapper.__cause__ = error
        return wrapper


class BrokenCallError(UnscoredError):
    """During an episode, the user's code raised an exception that neither the policy nor an outage caused.

    Args:
        text: the call, where it failed, and how.
        bug: an identifier for the traceback, which is the same whenever the same lines raise the same exception.
    """

    def __init__(self, text: str, bug: str) -> None:
        super().__init__(text)
        self.bug = bug

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.bug)

    @classmethod
    def of(cls, what: str, error: BaseException, code: Any = None) -> BrokenCallError:
        """Make the error for an exception that the user's code raised; see `UserCodeError.of`."""
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        place, kind = place_of(error, code), type(error).__name__
        digest = hashlib.sha256(repr((place, kind, frames)).encode()).hexdigest()[:12]
        return cls(f"{what} failed at {place}: {one_line(error)}", f"{kind} at {place} ({digest})")


class RepeatedBugs:
    """Counts how often each bug occurs in a run."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, bug: str, text: str) -> None:
        """Count one occurrence of a bug.

        Args:
            bug: see `BrokenCallError`.
            text: the error's message.

        Raises:
            FatalError: the bug has occurred eight times.
        """
        self._counts[bug] += 1
        if self._counts[bug] >= MAX_REPEATS:
            raise FatalError(
                f"{text}. This bug occurred {MAX_REPEATS} times: fix the code there. A tool should raise ToolError for "
                "the policy's mistakes (agent_rl.tools.on_error=observe shows every tool exception to the policy), and "
                "a gateway_agent program should catch them"
            )


def sort_out(what: str, error: Exception, *, stops: bool = True, remedy: str = "", code: Any = None) -> UnscoredError:
    """Convert an exception from code that scores a trajectory to the error that leaves the trajectory unscored.

    Args:
        what: see `UserCodeError`.
        error: the exception.
        stops: whether a bug stops the run; otherwise it leaves the trajectory unscored.
        remedy: the remedy in an error that stops the run; see `UserCodeError`.
        code: see `place_of`.

    Raises:
        FatalError: the exception is a FatalError, or a bug that stops the run.
    """
    if isinstance(error, FatalError):
        raise error
    if not is_outage(error):
        if stops:
            raise UserCodeError.of(what, error, remedy, code)
        unscored = UnscoredError(str(UserCodeError.of(what, error, code=code)))
    else:
        problem = str(error) if isinstance(error, AgentRLError) else f"{type(error).__name__}: {error}"
        unscored = UnscoredError(f"{what}: {problem}")
    unscored.__cause__ = error
    return unscored


def is_outage(error: BaseException) -> bool:
    """Whether an error is due to infrastructure: `UnscoredError`, a timeout, a failed connection, or status 429 or 5xx.

    Connection errors of common HTTP libraries are outages, regardless of their base class.
    """
    if isinstance(error, UnscoredError | TimeoutError | ConnectionError):
        return True
    status = getattr(getattr(error, "response", error), "status_code", getattr(error, "code", None))
    if isinstance(status, int):
        return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    names = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(error).__mro__}
    return not names.isdisjoint(_OUTAGES)


def place_of(error: BaseException, code: Any = None) -> str:
    """Return `file:line` of the innermost frame in the user's files, or of the innermost frame if none is the user's.

    Args:
        error: the exception.
        code: the called function or class, whose definition is the location if no line of the user's code has run.
    """
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    own = [frame for frame in frames if not frame[0].startswith(_NOT_THE_USERS)]
    if not own and code is not None:
        return defined_at(code)
    return "{}:{}".format(*(own or frames)[-1]) if frames else "an unknown line"


def defined_at(code: Any) -> str:
    """Return `file:line` of the definition of a function or a class."""
    try:
        return f"{inspect.getsourcefile(code)}:{inspect.getsourcelines(code)[1]}"
    except (OSError, TypeError):  # code without a source file is compiled, or defined at run time
        return f"{getattr(code, '__module__', None)}.{getattr(code, '__qualname__', code)}"


def is_users(code: Any) -> bool:
    """Whether a function or class is the user's own, that is, neither installed nor part of agent_rl."""
    try:
        return not str(inspect.getsourcefile(inspect.unwrap(code))).startswith(_NOT_THE_USERS)
    except TypeError:  # code without a source file is compiled, or defined at run time
        return not str(getattr(code, "__module__", "")).startswith(("agent_rl.", "builtins"))


def one_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
