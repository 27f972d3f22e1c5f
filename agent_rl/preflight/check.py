"""The `check` decorator, which turns a function of a `RunCase` into a check, and functions that run checks.

A check runs in one or more places: in the launcher when it composes a configuration (`compose`) and before it starts a
run (`launch`), in the trainer before Ray starts (`trainer`), and in `agent-rl doctor` (`doctor`). A check yields errors
or findings. The launcher and the trainer raise the first error. The doctor shows errors and findings; if a check yields
nothing, the doctor reports that there is no problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from agent_rl.errors import ConfigError, FatalError

GROUPS = ("installation", "machine", "Ray", "configuration", "data", "tools", "your code", "reward", "chat template")
"""The groups of checks, in the order in which they run and are shown; groups with other names come last."""


def group_order(group: str) -> int:
    """Return a group's position in the doctor's table."""
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


class Status(str, Enum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    """The run starts, but probably does not do what the user intends."""
    PROBLEM = "problem"
    """The run fails or hangs."""
    SKIPPED = "skipped"
    """The check could not be done on this machine."""


@dataclass(frozen=True)
class Finding:
    """The result of a check for one subject.

    Attributes:
        subject: what was checked; if empty, the check's own subject.
        status: the severity.
        text: the result in words.
        remedy: the change to make; empty if no change is needed.
        group: the finding's group in the table, filled in from the check.
    """

    subject: str
    status: Status
    text: str
    remedy: str = ""
    group: str = ""


def reason(error: BaseException) -> str:
    """Describe an error on one line; for an error that was raised from other errors, describe the original one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def warning(text: str, remedy: str, subject: str = "") -> Finding:
    """Create a finding that the user should read before starting the run."""
    return Finding(subject, Status.WARNING, text, remedy)


def problem(text: str, remedy: str, subject: str = "") -> Finding:
    """Create a finding about a problem that would make the run fail."""
    return Finding(subject, Status.PROBLEM, text, remedy)


def skipped(text: str, remedy: str = "", subject: str = "") -> Finding:
    """Create a finding that explains why something was not checked."""
    return Finding(subject, Status.SKIPPED, text, remedy)


class Needs(str, Enum):
    """The requirements of a check."""

    MACHINE = "machine"
    """The check needs only the machine, and also runs without a recipe."""
    CONFIG = "config"
    """The check needs the composed configuration."""
    VERL = "verl"
    """The check needs the configuration, in a process that has imported verl."""


Answer = Iterable[Finding | FatalError] | Finding | FatalError | None


@dataclass(frozen=True)
class Check:
    """A registered check.

    Attributes:
        group: the group of the check's findings in the table.
        subject: the subject of findings that do not name one.
        function: takes a `RunCase`, and returns findings or raises a `FatalError`.
        needs: the requirements of the check.
        at: the places where the check runs: `compose`, `launch`, `trainer`, `doctor`.
    """

    group: str
    subject: str
    function: Callable[[Any], Answer]
    needs: Needs = Needs.CONFIG
    at: frozenset[str] = frozenset({"doctor"})

    @property
    def place(self) -> tuple[int, str, str, int]:
        """The check's sort key: its group, then the module and line of its function."""
        return group_order(self.group), self.group, self.function.__module__, self.function.__code__.co_firstlineno

    def found(self, case: Any) -> Iterator[Finding | FatalError]:
        """Yield the findings and errors that the function returns, yields or raises."""
        try:
            answer = self.function(case)
            yield from (answer,) if isinstance(answer, Finding | FatalError) else answer or ()
        except FatalError as error:
            yield error

    def __call__(self, case: Any) -> Iterator[Finding]:
        """Yield the check's findings and errors as findings, or one finding with the status `ok` if there are none."""
        finding = None
        for result in self.found(case):
            finding = result if isinstance(result, Finding) else refusal(result)
            yield replace(finding, group=self.group, subject=finding.subject or self.subject)
        if finding is None:
            yield Finding(self.subject, Status.OK, "no problem found", group=self.group)


_registered: dict[tuple[int, str, str, int], Check] = {}


def check(
    group: str, subject: str = "", needs: Needs = Needs.CONFIG, at: Iterable[str] = ("doctor",)
) -> Callable[[Callable[[Any], Answer]], Check]:
    """Register a function as a check.

    Args:
        group: the group of the check's findings in the table.
        subject: the default subject of the check's findings; if empty, the function's name with spaces.
        needs: the requirements of the check.
        at: the places where the check runs.

    Returns:
        The decorator, for a function that returns one or several errors or findings, or None. The check yields
        findings.
    """

    def register(function: Callable[[Any], Answer]) -> Check:
        registered = Check(group, subject or function.__name__.replace("_", " "), function, needs, frozenset(at))
        _registered[registered.place] = registered
        return registered

    return register


def checks_at(at: str) -> list[Check]:
    """Return the registered checks that run at a place, in order."""
    return [registered for _, registered in sorted(_registered.items()) if at in registered.at]


def refuse(at: str, case: Any) -> None:
    """Run the checks that are registered for a place.

    Raises:
        FatalError: the first error from a check.
    """
    for registered in checks_at(at):
        for each in registered.found(case):
            if isinstance(each, FatalError):
                raise each


def refusal(error: FatalError) -> Finding:
    """Convert an error to a finding."""
    if isinstance(error, ConfigError):
        return problem(f"{error.key}: {error.problem}", error.remedy)
    return problem(str(error), "Correct the code that the error names")
