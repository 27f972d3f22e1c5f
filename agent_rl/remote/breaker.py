"""`CircuitBreaker`: stops requests to a service that keeps failing, and tries the service again after a pause."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field

from agent_rl.errors import UnscoredError
from agent_rl.remote.responses import RemoteError

__all__ = ["BreakerConfig", "CircuitBreaker"]

logger = logging.getLogger(__name__)


class BreakerConfig(BaseModel):
    """When a circuit opens. A request counts once, with all its retries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures: int | None = Field(default=10, ge=1)
    """Failed requests in a row; null: any number."""
    cooldown_s: float = Field(default=30.0, gt=0)
    """Seconds that a circuit stays open before one request probes the service."""


class CircuitBreaker:
    """Shared by all requests of a process to one service.

    Args:
        config: when to open.
        host: name of the service, for messages.
        clock: monotonic time in seconds.
    """

    def __init__(self, config: BreakerConfig, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self.host = config, host
        self._clock = clock
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._opened: float | None = None
        self._probing = False
        self._reason = ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """One request: an `UnscoredError` is a failure of the service; any other exception says nothing about it.

        Raises:
            RemoteError: the circuit is open; the request must not be sent.
        """
        with self._lock:
            probe = self._opened is not None
            if self._opened is not None and (self._probing or self._clock() - self._opened < self.config.cooldown_s):
                problem = f"the circuit is open after failures, the last: {self._reason}"
                raise RemoteError(self.host, problem, attempts=0)
            self._probing = probe
        try:
            yield
        except UnscoredError as error:
            self._count(probe, str(error))
            raise
        except BaseException:  # cancelled, or an error of the caller: no failure of the service
            with self._lock:
                self._probing = self._probing and not probe
            raise
        self._count(probe, None)

    def _count(self, probe: bool, problem: str | None) -> None:
        with self._lock:
            if self._opened is not None and not probe:
                return  # it was sent before the circuit opened
            self._probing = False
            self._in_a_row = 0 if problem is None else self._in_a_row + 1
            failures = self.config.failures
            if problem is not None and (probe or (failures is not None and self._in_a_row >= failures)):
                self._opened, self._reason = self._clock(), problem
                logger.warning("%s: circuit open for %g s: %s", self.host, self.config.cooldown_s, problem)
            elif probe:
                self._opened = None
                logger.warning("%s: circuit closed, the service answers again", self.host)
