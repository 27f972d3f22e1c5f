"""A circuit opens after failures, and one request probes whether the service is back."""

import asyncio

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.remote.breaker import BreakerConfig, CircuitBreaker
from agent_rl.remote.responses import RemoteError


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def breaker(clock: Clock | None = None, **config: float | None) -> CircuitBreaker:
    return CircuitBreaker(BreakerConfig.model_validate({"cooldown_s": 30, **config}), "it", clock or Clock())


def run(each: CircuitBreaker, outcomes: str) -> str:
    """`.` a success, `x` a failure; the same text, with `-` for each request that was not sent."""
    seen = ""
    for outcome in outcomes:
        try:
            with each.watch():
                seen += outcome
                if outcome == "x":
                    raise UnscoredError("down")
        except RemoteError:
            seen += "-"
        except UnscoredError:
            pass
    return seen


def test_failures_in_a_row() -> None:
    assert run(breaker(failures=3), "xx.xx.xxx..") == "xx.xx.xxx--"


def test_a_breaker_without_limits_never_opens() -> None:
    assert run(breaker(failures=None), "x" * 100) == "x" * 100


def test_the_error_gives_the_reason() -> None:
    each = breaker(failures=1)
    run(each, "x")
    with pytest.raises(RemoteError, match=r"it: the circuit is open after repeated .*: down"), each.watch():
        raise AssertionError


def test_one_request_probes_after_the_cooldown() -> None:
    clock = Clock()
    each = breaker(clock, failures=2)
    run(each, "xx")
    clock.now = 29.9
    assert run(each, ".") == "-"
    clock.now = 30
    with each.watch():
        assert run(each, "..") == "--"  # during a probe the others are not sent
    assert run(each, "x.x.") == "x.x."
    run(each, "xx")
    clock.now = 60
    assert run(each, "x..") == "x--"  # the circuit is open for as long again
    clock.now = 90
    assert run(each, "..") == ".."


def test_a_cancelled_request_is_neither_success_nor_failure() -> None:
    clock = Clock()
    each = breaker(clock, failures=1)
    with pytest.raises(asyncio.CancelledError), each.watch():
        raise asyncio.CancelledError
    assert run(each, "x.") == "x-"
    clock.now = 30
    with pytest.raises(asyncio.CancelledError), each.watch():
        raise asyncio.CancelledError
    assert run(each, "..") == ".."


def test_a_request_sent_before_the_circuit_opened_does_not_close_it() -> None:
    clock = Clock()
    each = breaker(clock, failures=1)
    with each.watch():
        run(each, "x")
    assert run(each, ".") == "-"
