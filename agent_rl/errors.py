"""One exception tree, whose branches determine who must handle a failure.

- `ObservationError`: the model's own mistake. The policy reads the error's message as a tool result, and rewards can
  count such errors.
- `UnscoredError`: the infrastructure failed. The trajectory is counted, but has no reward at all (not a reward of 0),
  so it affects neither the policy nor its group's baseline.
- `FatalError`: the configuration or the code is wrong. The run must stop immediately, before GPU time is spent, and the
  error names the key.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "AgentRLError",
    "ConfigError",
    "EngineError",
    "FatalError",
    "InvalidArgumentsError",
    "MalformedActionError",
    "ObservationError",
    "ToolError",
    "ToolTimeoutError",
    "UnknownToolError",
    "UnscoredError",
    "did_you_mean",
    "reason_of",
]


class AgentRLError(Exception):
    """Base class of all errors that agent_rl raises on purpose."""


class ObservationError(AgentRLError):
    """The policy's own mistake; the message is written for the policy to read."""

    reward: float | None = None
    """The reward of the failed call, which an environment's `reward_turn` set."""


class MalformedActionError(ObservationError):
    """The turn's text does not follow the agent's format."""


class UnknownToolError(ObservationError):
    """The policy called a tool that does not exist."""


class InvalidArgumentsError(ObservationError):
    """The arguments do not match the tool's schema."""


class ToolError(ObservationError):
    """A valid call failed in the tool; tools raise this error with a message for the policy."""


class ToolTimeoutError(ObservationError):
    """The tool did not finish within its time limit."""


class UnscoredError(AgentRLError):
    """The infrastructure failed, so this trajectory must not affect the policy."""


class EngineError(UnscoredError):
    """The inference engine did not answer."""


class FatalError(AgentRLError):
    """Wrong configuration or wrong code: the run must stop."""


class ConfigError(FatalError):
    """A configuration value that cannot be used.

    Args:
        key: the full key as the user writes it, such as `agent_rl.reward.efficiency.penalty`, or a file and an entry.
        problem: what is wrong, including the value.
        remedy: what the user can do about it.
    """

    def __init__(self, key: str, problem: str, remedy: str) -> None:
        super().__init__(f"{key}: {problem}. {remedy}")
        self.key = key
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[Any, ...]:  # by default, pickle would not pass all three arguments
        return type(self), (self.key, self.problem, self.remedy)


def reason_of(error: Exception) -> str:
    """Return an error's message; for an `OSError`, return it without the error number and the path."""
    missing = isinstance(error, FileNotFoundError)
    return "there is no such file or folder" if missing else getattr(error, "strerror", None) or str(error)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a remedy that suggests names similar to an unknown name, and lists the known names if they are few."""
    names = sorted(known)
    similar = difflib.get_close_matches(name, names, n=3) or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if similar and len(names) > FEW:
        return f"Did you mean {' or '.join(map(repr, similar))}?"
    if len(names) > MOST_LISTED:
        return f"None of the {len(names)} known names is similar."
    listing = f"Known: {', '.join(names) or 'none'}."
    return f"Did you mean '{similar[0]}'? {listing}" if similar else listing


FEW, MOST_LISTED = 8, 24
"""Maximum number of known names that an error lists: `FEW` if one is similar, otherwise `MOST_LISTED`."""
