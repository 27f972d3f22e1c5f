"""A finding of a check, which is one row of the doctor's table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum

__all__ = ["Finding", "Status", "ok", "problem", "reason", "skipped", "warning"]


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
