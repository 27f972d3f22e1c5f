"""The decorator `check`, which turns a function of a `Case` into a check of the doctor, and the findings of a check.

Each check is in a file of the folder `checks`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from enum import Enum

from agent_rl.doctor.case import Case

__all__ = [
    "GROUPS",
    "Check",
    "Finding",
    "Needs",
    "Status",
    "all_checks",
    "check",
    "ok",
    "problem",
    "reason",
    "skipped",
    "warning",
]

GROUPS = ("installation", "machine", "Ray", "configuration", "data", "tools", "your code", "reward", "chat template")
"""The groups of the table in their order; a group of another name comes after them."""


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

    def to_dict(self) -> dict[str, str]:
        """JSON data."""
        return asdict(self) | {"status": self.status.value}

    @classmethod
    def from_dict(cls, data: dict[str, str]) -> Finding:
        """A finding from the output of `to_dict`."""
        return cls(**(data | {"status": Status(data["status"])}))  # type: ignore[arg-type]


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


@dataclass(frozen=True)
class Check:
    """A registered check.

    Attributes:
        group: the group of the table in which its findings are shown.
        run: yields what it finds; the doctor turns a `ConfigError` that it raises into a finding.
        needs: what it needs to run.
        place: module and line, by which the checks of a group are sorted.
    """

    group: str
    run: Callable[[Case], Iterator[Finding]]
    needs: Needs
    place: tuple[str, int] = ("", 0)

    @property
    def name(self) -> str:
        """The function's name with spaces: the subject of a finding about the check itself."""
        return self.run.__name__.replace("_", " ")


_found: dict[tuple[str, int], Check] = {}

Function = Callable[[Case], Iterable[Finding] | Finding | None]


def check(
    group: str, subject: str = "", needs: Needs = Needs.CONFIG
) -> Callable[[Function], Callable[[Case], Iterator[Finding]]]:
    """Register a function as a check.

    Args:
        group: the group of the table in which its findings are shown.
        subject: the default subject of its findings; without one the function's name with spaces.
        needs: what it needs to run.

    Returns:
        The decorator. The function returns a finding, several, or None; as a check it always yields them.
    """

    def register(function: Function) -> Callable[[Case], Iterator[Finding]]:
        own = subject or function.__name__.replace("_", " ")

        @functools.wraps(function)
        def run(case: Case) -> Iterator[Finding]:
            found = function(case)
            for finding in (found,) if isinstance(found, Finding) else found or ():
                yield replace(finding, group=group, subject=finding.subject or own)

        place = function.__module__, function.__code__.co_firstlineno
        _found[place] = Check(group, run, needs, place)
        return run

    return register


def all_checks() -> list[Check]:
    """Every check of the folder, in the order of the table."""
    from agent_rl.doctor import checks

    for module in pkgutil.iter_modules(checks.__path__):
        importlib.import_module(f"{checks.__name__}.{module.name}")
    order = {group: number for number, group in enumerate(GROUPS)}
    return sorted(_found.values(), key=lambda each: (order.get(each.group, len(order)), each.group, each.place))
