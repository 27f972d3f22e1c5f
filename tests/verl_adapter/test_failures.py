"""What a failure says, and when it stops the run."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
import transfer_queue
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from agent_rl.errors import ConfigError, FatalError, UnscoredError
from agent_rl.settings.user_code import BrokenCallError
from agent_rl.verl_adapter.failures import FailedSessions, is_fatal, report_bug, tag

REMOTE = RayTaskError("compute_score", "traceback", ConfigError("key", "wrong", "Fix it"))
CAUSE = REMOTE.as_instanceof_cause()
LOST = AssertionError("Agent loop react_agnt not registered, registered agent loops: dict_keys([])")


def test_errors_of_every_owner_are_told_apart() -> None:
    assert all(map(is_fatal, [REMOTE, CAUSE, FatalError("x"), LOST, ActorDiedError()]))
    assert not any(map(is_fatal, [UnscoredError("x"), ValueError("x"), ActorUnavailableError("busy", None)]))
    assert "Did you mean 'react_agent'" in tag(LOST, validate=False)["error"]
    assert tag(CAUSE, validate=False)["error"].endswith(": key: wrong. Fix it")


@pytest.mark.parametrize(("share", "failed", "stops"), [(0.5, 4, False), (0.5, 5, True), (0, 1, True), (1, 4, False)])
def test_too_large_a_share_without_a_score_stops_the_run(share: float, failed: int, stops: bool) -> None:
    errors = ["the judge is away"] * (failed - 1) + ["half a body"]
    with pytest.raises(UnscoredError) if stops else nullcontext() as caught:
        FailedSessions(share).require_scored(4, errors)
    if stops:
        assert f"{failed} of {4 + failed} trajectories" in str(caught.value)
        assert f"{failed - 1} times: the judge is away" in str(caught.value) or failed == 1


def test_what_workers_report_is_counted_once_over_all_steps() -> None:
    failures = FailedSessions(1)
    tags = {f"key {n}": {"error": "tool x failed", "fatal": False, "bug": "KeyError at x.py:3 (ab)"} for n in range(8)}
    first = dict(list(tags.items())[:4])
    for failed in ({}, first, first, {**first, "other": {"error": "the judge is away", "fatal": False, "bug": ""}}):
        failures.see(failed)
    with pytest.raises(FatalError, match=r"tool x failed\. This bug occurred 8 times"):
        failures.see(dict(list(tags.items())[4:]))
    with pytest.raises(FatalError, match=r"^wrong key$"):
        failures.see({"key": {"error": "wrong key", "fatal": True}})


def test_the_same_bug_in_eight_scored_sessions_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the sessions count as scored."""
    tags: dict[str, Any] = {}

    async def put(key: str, partition_id: str, tag: Any) -> None:
        tags[key] = tag

    for name, function in {"async_kv_put": put, "kv_list": lambda name: {name: dict(tags)}}.items():
        monkeypatch.setattr(transfer_queue, name, function)
    monkeypatch.setattr(transfer_queue, "kv_clear", lambda keys, partition_id: tags.clear())

    def crash(session: int, bug: str) -> None:
        asyncio.run(report_bug(f"u_{session}", BrokenCallError("exit code 1: KeyError (KeyError at a.py:3)", bug)))

    failures = FailedSessions(0)
    for session in range(7):
        crash(session, "KeyError at a.py:3")
        crash(100 + session, f"KeyError at a.py:{session + 4}")
        assert failures.take() == {}
    assert "failed" not in str(failures.nothing_usable("none"))
    crash(7, "KeyError at a.py:3")
    with pytest.raises(FatalError, match=r"KeyError at a\.py:3\)\. This bug occurred 8 times"):
        failures.take()
