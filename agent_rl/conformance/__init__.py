"""Checks that training through a gateway between agents and a policy uses exactly the tokens that the policy sampled.

A `Driver` connects a gateway to the scripted engine, and returns the gateway's training sequences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from agent_rl.conformance.engine import Engine

__all__ = ["Driver", "OpenSession", "TrainedSequence", "Unsupported"]


class Unsupported(Exception):
    """The gateway or its driver lacks a feature that a check needs."""


class OpenSession(NamedTuple):
    """An open session: the address without `/v1`, the key that clients send, and the driver's own data."""

    base_url: str
    key: str
    handle: Any = None


class TrainedSequence(NamedTuple):
    """A training sequence, like `agents.policies.token_policy.TrainingSequence`; log-probs and versions may be None."""

    prompt_ids: Sequence[int]
    response_ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float] | None
    versions: tuple[int, int] | None = None
    """The first and the last version of the weights that sampled the episode."""


class Driver(ABC):
    """A gateway under test. Every method may raise Unsupported."""

    @abstractmethod
    async def start(self, engine: Engine) -> None:
        """Start the gateway, whose policy is `engine.generate` in this process or the server at `engine.url`."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the gateway."""

    @abstractmethod
    async def session(self, *, temperature: float = 1.0, logprobs: bool = True) -> OpenSession:
        """Open a session for one episode of a run with this temperature; if `logprobs` is set, the run records them."""

    @abstractmethod
    async def finish(self, session: OpenSession) -> None:
        """End the episode."""

    @abstractmethod
    async def sequences(self, session: OpenSession) -> list[TrainedSequence]:
        """Return the training sequences of a session that has ended."""
