"""`CircuitBreaker`: a service that keeps failing is left alone for a while, so that nobody waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pydantic import Field

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import ComponentConfig

__all__ = ["BreakerConfig", "CircuitBreaker", "LeftAloneError"]

logger = logging.getLogger(__name__)


class LeftAloneError(UnscoredError):
    """The request was not made."""


class BreakerConfig(ComponentConfig):
    """When a service is left alone; a request counts once, with all its attempts."""

    failures: int | None = Field(default=10, ge=1)
    """Failed requests in a row; null: any number."""
    share: float | None = Field(default=0.5, gt=0, le=1)
    """Share of failed requests among the last `window`; null: any share."""
    window: int = Field(default=50, ge=1)
    cooldown_s: float = Field(default=30.0, gt=0)
    """Seconds until one request may try whether it is well again."""


class CircuitBreaker:
    """Shared by all requests of a process to one service.

    Args:
        config: when to open.
        name: of the service, for messages.
        clock: seconds that only grow.
    """

    def __init__(self, config: BreakerConfig, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.config, self.name = config, name
        self._clock = clock
        self._lock = threading.Lock()
        self._last: deque[bool] = deque(maxlen=config.window)  # whether it failed
        self._in_a_row = 0
        self._opened: float | None = None
        self._probing = False
        self._reason = ""

    @contextmanager
    def watch(self) -> Iterator[None]:
        """One request: an `UnscoredError` that leaves it is a failure of the service, its end a success.

        Raises:
            LeftAloneError: the service is left alone, and why; the request is not to be made.
        """
        probe = self._enter()
        try:
            yield
        except UnscoredError as error:
            self._ended(probe, str(error))
            raise
        except BaseException:  # cancelled, or not the service's fault: says nothing about it, and goes on
            with self._lock:
                self._probing = self._probing and not probe
            raise
        self._ended(probe, None)

    def _enter(self) -> bool:
        """Whether the request is the one that tries whether the service is well again."""
        with self._lock:
            if self._opened is None:
                return False
            if not self._probing and self._clock() - self._opened >= self.config.cooldown_s:
                self._probing = True
                return True
            raise LeftAloneError(f"{self.name} is left alone after failures, the last: {self._reason}")

    def _ended(self, probe: bool, problem: str | None) -> None:
        with self._lock:
            if self._opened is not None:
                if probe:
                    self._probing = False
                    self._probed(problem)
                return  # those that began before it opened decide nothing
            failed = problem is not None
            self._last.append(failed)
            self._in_a_row = self._in_a_row + 1 if failed else 0
            if problem is not None and self._too_many():
                self._opened, self._reason = self._clock(), problem
                logger.warning("%s is left alone for %g s: %s", self.name, self.config.cooldown_s, problem)

    def _probed(self, problem: str | None) -> None:
        if problem is not None:
            self._opened, self._reason = self._clock(), problem
            return
        self._opened, self._in_a_row = None, 0
        self._last.clear()
        logger.warning("%s is well again", self.name)

    def _too_many(self) -> bool:
        config = self.config
        if config.failures is not None and self._in_a_row >= config.failures:
            return True
        full = len(self._last) == config.window
        return config.share is not None and full and sum(self._last) >= config.share * config.window
