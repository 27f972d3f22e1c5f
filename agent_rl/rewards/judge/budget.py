"""What a judge may cost, and what it has cost so far, in one process."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field

from pydantic import Field

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import ComponentConfig

__all__ = ["Budget", "BudgetConfig", "Usage"]

logger = logging.getLogger(__name__)


class BudgetConfig(ComponentConfig):
    """Limits for the life of a process; null: none. A run has as many processes as it has reward or agent workers."""

    calls: int | None = Field(default=None, ge=1)
    """Requests; one that is repeated after a failure counts once."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens of prompts and replies, as the server counts them; requests in flight may go beyond it."""


@dataclass(slots=True)
class Usage:
    """Totals of a process."""

    calls: int = 0
    """Requests."""
    attempts: int = 0
    """How often they were sent."""
    failures: int = 0
    """Requests without an answer that could be used."""
    refused: int = 0
    """Requests that were not made: the budget was spent, or the service left alone."""
    tokens: int = 0
    """Of prompts and replies."""


@dataclass(slots=True)
class Budget:
    """Counts, and says when it is enough."""

    config: BudgetConfig
    name: str
    """Of the component, for messages."""
    usage: Usage = field(default_factory=Usage)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _said: bool = False

    def require(self) -> None:
        """Refuse a request when nothing is left.

        Raises:
            UnscoredError: the budget is spent.
        """
        spent = self._spent()
        if spent is None:
            return
        self.count(refused=1)
        if not self._said:
            self._said = True
            logger.warning("%s: %s: this process judges nothing any more", self.name, spent)
        raise UnscoredError(f"{self.name}: {spent}")

    def count(self, **numbers: int) -> None:
        """Add to the totals, by their names."""
        with self._lock:
            for name, number in numbers.items():
                setattr(self.usage, name, getattr(self.usage, name) + number)

    def _spent(self) -> str | None:
        calls, tokens = self.config.calls, self.config.tokens
        if calls is not None and self.usage.calls >= calls:
            return f"the budget of {calls} calls is spent"
        if tokens is not None and self.usage.tokens >= tokens:
            return f"the budget of {tokens} tokens is spent"
        return None
