"""The decorator `check`, which turns a function of a `RunCase` into a check, and what runs the checks of a place.

A check is made at one or several places: by the launcher when it composes a configuration (`compose`) and before it
starts a run (`launch`), by the trainer before Ray starts (`trainer`), and by `agent-rl doctor` (`doctor`). It yields
errors, of which launcher and trainer raise the first and the doctor shows all, or findings, which the doctor shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from agent_rl.errors import ConfigError, FatalError

__all__ = [
    "GROUPS",
    "Check",
    "Finding",
    "Needs",
    "Status",
    "check",
    "checks_at",
    "group_order",
    "ok",
    "problem",
    "reason",
    "refusal",
    "refuse",
    "skipped",
    "warning",
]

GROUPS = ("installation", "machine", "Ray", "configuration", "data", "tools", "your code", "reward", "chat template")
"""The groups in the order in which they are checked and shown; a group of another name comes after them."""


def group_order(group: str) -> int:
    """Where a group stands in the table."""
    return GROUPS.index(group) if group in GROUPS else len(GROUPS)


class Status(str, Enum):
    """How serious a finding is."""

    OK = "ok"
    WARNING = "warning"
    """The run starts, but probably does not do what the user wants."""
    PROBLEM = "problem"
    """The run fails or hangs."""
    SKIPPED = "skipped"
    """It could not be checked here."""


@dataclass(frozen=True)
class Finding:
    """What one check says about one subject.

    Attributes:
        subject: what was checked; empty: the check's own subject.
        status: how serious it is.
        text: what was found.
        remedy: what to change; empty when there is nothing to do.
        group: the group of the table, filled in from the check.
    """

    subject: str
    status: Status
    text: str
    remedy: str = ""
    group: str = ""


def reason(error: BaseException) -> str:
    """An error in one line: its first cause, if it was raised from another error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def ok(text: str, subject: str = "") -> Finding:
    """A finding with nothing to do."""
    return Finding(subject, Status.OK, text)


def warning(text: str, remedy: str, subject: str = "") -> Finding:
    """A finding that the user should look at before the run."""
    return Finding(subject, Status.WARNING, text, remedy)


def problem(text: str, remedy: str, subject: str = "") -> Finding:
    """A finding that makes the run fail."""
    return Finding(subject, Status.PROBLEM, text, remedy)


def skipped(text: str, remedy: str = "", subject: str = "") -> Finding:
    """A finding that says why something was not checked."""
    return Finding(subject, Status.SKIPPED, text, remedy)


class Needs(str, Enum):
    """What a check needs to run."""

    MACHINE = "machine"
    """Nothing: it runs without a recipe as well."""
    CONFIG = "config"
    """The composed configuration."""
    VERL = "verl"
    """The configuration, in a process that has imported verl."""


Answer = Iterable[Finding | FatalError] | Finding | FatalError | None


@dataclass(frozen=True)
class Check:
    """A registered check.

    Attributes:
        group: the group of the table in which its findings are shown.
        subject: of findings that name none.
        function: takes a `RunCase`; returns what it finds, or raises a `FatalError`.
        needs: what it needs to run.
        at: where it is made: `compose`, `launch`, `trainer`, `doctor`.
    """

    group: str
    subject: str
    function: Callable[[Any], Answer]
    needs: Needs = Needs.CONFIG
    at: frozenset[str] = frozenset({"doctor"})

    @property
    def place(self) -> tuple[int, str, str, int]:
        """By which checks are sorted: the group, then module and line."""
        return group_order(self.group), self.group, self.function.__module__, self.function.__code__.co_firstlineno

    def found(self, case: Any) -> Iterator[Finding | FatalError]:
        """What the function returns, yields and raises."""
        try:
            answer = self.function(case)
            yield from (answer,) if isinstance(answer, Finding | FatalError) else answer or ()
        except FatalError as error:
            yield error

    def __call__(self, case: Any) -> Iterator[Finding]:
        """The same, errors as findings."""
        for each in self.found(case):
            finding = each if isinstance(each, Finding) else refusal(each)
            yield replace(finding, group=self.group, subject=finding.subject or self.subject)


_registered: dict[tuple[int, str, str, int], Check] = {}


def check(
    group: str, subject: str = "", needs: Needs = Needs.CONFIG, at: Iterable[str] = ("doctor",)
) -> Callable[[Callable[[Any], Answer]], Check]:
    """Register a function as a check.

    Args:
        group: the group of the table in which its findings are shown.
        subject: the default subject of its findings; without one the function's name with spaces.
        needs: what it needs to run.
        at: where it is made.

    Returns:
        The decorator. The function returns an error or a finding, several, or None; the check yields findings.
    """

    def register(function: Callable[[Any], Answer]) -> Check:
        one = Check(group, subject or function.__name__.replace("_", " "), function, needs, frozenset(at))
        _registered[one.place] = one
        return one

    return register


def checks_at(at: str) -> list[Check]:
    """The checks of a place whose modules have been imported, in their order."""
    return [one for _, one in sorted(_registered.items()) if at in one.at]


def refuse(at: str, case: Any) -> None:
    """Make the checks of a place.

    Raises:
        FatalError: the first that one of them finds.
    """
    for one in checks_at(at):
        for each in one.found(case):
            if isinstance(each, FatalError):
                raise each


def refusal(error: FatalError) -> Finding:
    """An error as a finding."""
    if isinstance(error, ConfigError):
        return problem(f"{error.key}: {error.problem}", error.remedy)
    return problem(str(error), "Correct the code there")
