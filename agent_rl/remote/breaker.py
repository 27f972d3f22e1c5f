"""`CircuitBreaker`: stops sending requests to a service that keeps failing, and tries it again after a pause."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import BaseModel, ConfigDict, Field

from agent_rl.errors import UnscoredError
from agent_rl.remote.responses import RemoteError

logger = logging.getLogger(__name__)


class BreakerConfig(BaseModel):
    """Settings that determine when a circuit opens. A failed request counts once, no matter how often it is retried."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    failures: int | None = Field(default=10, ge=1)
    """Number of consecutive failed requests after which the circuit opens; if null, the circuit never opens."""
    cooldown_s: float = Field(default=30.0, gt=0)
    """Seconds that a circuit stays open before a single request probes the service."""


class CircuitBreaker:
    """Counts the failures of one service; all requests from a process to that service share one breaker.

    Args:
        config: when the circuit opens, and for how long.
        host: name of the service, used in messages.
        clock: returns a monotonic time in seconds.
    """

    def __init__(self, config: BreakerConfig, host: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self.host = config, host
        self._clock = clock
        self._lock = threading.Lock()
        self._failure_count = 0
        self._open_at: float | None = None
        self._probing = False
        self._reason = ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Wrap one request. An `UnscoredError` is counted as a failure of the service; other exceptions are not.

        Raises:
            RemoteError: the circuit is open, so the request must not be sent.
        """
        with self._lock:
            probe = self._open_at is not None
            if self._open_at is not None and (self._probing or self._clock() - self._open_at < self.config.cooldown_s):
                problem = f"the circuit is open after repeated failures; the last failure was: {self._reason}"
                raise RemoteError(self.host, problem, attempts=0)
            self._probing = probe
        try:
            yield
        except UnscoredError as error:
            self._count(probe, str(error))
            raise
        except BaseException:  # the service did not fail: the request was cancelled, or the caller failed
            with self._lock:
                self._probing = self._probing and not probe
            raise
        self._count(probe, None)

    def _count(self, probe: bool, problem: str | None) -> None:
        with self._lock:
            if self._open_at is not None and not probe:
                return  # this request was sent before the circuit opened
            self._probing = False
            self._failure_count = 0 if problem is None else self._failure_count + 1
            failures = self.config.failures
            if problem is not None and (probe or (failures is not None and self._failure_count >= failures)):
                self._open_at, self._reason = self._clock(), problem
                logger.warning("%s: the circuit is open for %g s: %s", self.host, self.config.cooldown_s, problem)
            elif probe:
                self._open_at = None
                logger.warning("%s: the circuit is closed, because the service answers again", self.host)
