"""`CircuitBreaker`: stops requests to a service that keeps failing, and tries the service again after a pause.

Own code, because the libraries (purgatory, aiobreaker, circuitbreaker, pybreaker) count failures in a row only: a
service that fails every second request would never be stopped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field

from agent_rl.errors import UnscoredError
from agent_rl.remote.responses import NotSentError

__all__ = ["BreakerConfig", "CircuitBreaker"]

logger = logging.getLogger(__name__)


class BreakerConfig(BaseModel):
    """When a circuit opens. A request counts once, with all its retries."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures: int | None = Field(default=10, ge=1)
    """Failed requests in a row; null: any number."""
    share: float | None = Field(default=0.5, gt=0, le=1)
    """Share of failed requests among the last `window`; null: any share."""
    window: int = Field(default=50, ge=1)
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
        self._failed: deque[bool] = deque(maxlen=config.window)
        self._in_a_row = 0
        self._opened: float | None = None
        self._probing = False
        self._reason = ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """One request: an `UnscoredError` is a failure of the service; any other exception says nothing about it.

        Raises:
            NotSentError: the circuit is open; the request must not be sent.
        """
        probe = self._enter()
        try:
            yield
        except UnscoredError as error:
            self._ended(probe, str(error))
            raise
        except BaseException:  # cancelled, or an error of the caller: no failure of the service
            with self._lock:
                self._probing = self._probing and not probe
            raise
        self._ended(probe, None)

    def _enter(self) -> bool:
        """Whether the request is the probe of an open circuit."""
        with self._lock:
            if self._opened is None:
                return False
            if self._probing or self._clock() - self._opened < self.config.cooldown_s:
                problem = f"the circuit is open after failures, the last: {self._reason}"
                raise NotSentError(self.host, problem, attempts=0)
            self._probing = True
            return True

    def _ended(self, probe: bool, problem: str | None) -> None:
        with self._lock:
            if self._opened is not None and not probe:
                return  # it was sent before the circuit opened
            self._probing = False
            self._failed.append(problem is not None)
            self._in_a_row = 0 if problem is None else self._in_a_row + 1
            if problem is not None and (probe or self._too_many()):
                self._opened, self._reason = self._clock(), problem
                logger.warning("%s: circuit open for %g s: %s", self.host, self.config.cooldown_s, problem)
            elif probe:
                self._opened = None
                self._failed.clear()
                logger.warning("%s: circuit closed, the service answers again", self.host)

    def _too_many(self) -> bool:
        config = self.config
        if config.failures is not None and self._in_a_row >= config.failures:
            return True
        full = len(self._failed) == config.window
        return config.share is not None and full and sum(self._failed) >= config.share * config.window
