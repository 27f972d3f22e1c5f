"""What a check found: one row of the table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum

__all__ = ["Finding", "Status", "ok", "problem", "reason", "skipped", "warning"]


class Status(str, Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """The run starts, and will probably not do what is wanted."""
    PROBLEM = "problem"
    """The run fails or waits forever."""
    SKIPPED = "skipped"
    """It could not be checked here."""


@dataclass(frozen=True)
class Finding:
    """One row.

    Attributes:
        subject: what was checked; empty: the check's own subject.
        status: how bad it is.
        text: what was found.
        remedy: what to change; empty when there is nothing to do.
        group: the part of the table, filled in from the check.
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
        """What `to_dict` gave."""
        return cls(**(data | {"status": Status(data["status"])}))  # type: ignore[arg-type]


def reason(error: BaseException) -> str:
    """What went wrong, as one line: the first cause, where one error was raised from another."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def ok(text: str, subject: str = "") -> Finding:
    """Nothing to do."""
    return Finding(subject, Status.OK, text)


def warning(text: str, remedy: str, subject: str = "") -> Finding:
    """Worth a look before the run."""
    return Finding(subject, Status.WARNING, text, remedy)


def problem(text: str, remedy: str, subject: str = "") -> Finding:
    """To be changed before the run."""
    return Finding(subject, Status.PROBLEM, text, remedy)


def skipped(text: str, remedy: str = "", subject: str = "") -> Finding:
    """Not checked, and why."""
    return Finding(subject, Status.SKIPPED, text, remedy)
