"""`Metrics`: the service's counts and latencies, for Prometheus."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from agent_rl.rewards.service.wire import Answer, Unscored

__all__ = ["Metrics", "Seen"]

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Seen:
    """A request; `status` is set when it is answered."""

    status = 499
    """The client disconnected before the answer."""


class Metrics:
    """The counts of one service."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        prefix, registry = "agent_rl_reward", self._registry
        self._requests = Counter(f"{prefix}_requests", "Requests", ["endpoint", "status"], registry=registry)
        self._seconds = Histogram(
            f"{prefix}_request_seconds", "Seconds of a request", ["endpoint"], registry=registry, buckets=BUCKETS_S
        )
        self._in_flight = Gauge(f"{prefix}_requests_in_flight", "Open requests", ["endpoint"], registry=registry)
        self._trajectories = Counter(
            f"{prefix}_trajectories", "Items, scored or unscored", ["endpoint", "outcome"], registry=registry
        )

    @contextmanager
    def request(self, endpoint: str) -> Iterator[Seen]:
        """Count a request for as long as it is open."""
        seen, began, in_flight = Seen(), time.perf_counter(), self._in_flight.labels(endpoint)
        in_flight.inc()
        try:
            yield seen
        finally:
            in_flight.dec()
            self._seconds.labels(endpoint).observe(time.perf_counter() - began)
            self._requests.labels(endpoint, str(seen.status)).inc()

    def answered(self, endpoint: str, answers: Sequence[Answer]) -> None:
        """Count the items of a request."""
        tally = Tally("unscored" if isinstance(answer, Unscored) else "scored" for answer in answers)
        for outcome, count in tally.items():
            self._trajectories.labels(endpoint, outcome).inc(count)

    def text(self) -> str:
        """All counts, in Prometheus' text format."""
        return generate_latest(self._registry).decode()
