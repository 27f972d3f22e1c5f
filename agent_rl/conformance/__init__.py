"""Checks of gateways between agents and a policy: is exactly what was sampled through the gateway trained?

A `Driver` connects a gateway to the scripted engine, and returns the training sequences that the gateway makes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from agent_rl.conformance.engine import Engine

__all__ = ["Driver", "OpenSession", "TrainedSequence", "Unsupported"]


class Unsupported(Exception):
    """The gateway, or its driver, does not offer what a check needs."""


class OpenSession(NamedTuple):
    """An open session: the address without `/v1`, the key that clients send, and the driver's own data."""

    base_url: str
    key: str
    handle: Any = None


class TrainedSequence(NamedTuple):
    """A training sequence, as `agents.policies.token_policy.TrainingSequence`; None: no log-probs, or no versions."""

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float] | None
    versions: tuple[int, int] | None = None
    """First and last version of the weights that sampled the episode."""


class Driver(ABC):
    """A gateway under test. Each method may raise Unsupported."""

    @abstractmethod
    async def start(self, engine: Engine) -> None:
        """Start the gateway; its policy is `engine.generate` in this process, or the server at `engine.url`."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the gateway."""

    @abstractmethod
    async def session(self, *, temperature: float = 1.0, logprobs: bool = True) -> OpenSession:
        """Open a session: an episode of a run with this temperature, which records log-probs or not."""

    @abstractmethod
    async def finish(self, session: OpenSession) -> None:
        """End the episode."""

    @abstractmethod
    async def sequences(self, session: OpenSession) -> list[TrainedSequence]:
        """Return the training sequences of a session that has ended."""
