"""When the last sessions of a step are ended; tests/e2e/test_stragglers.py ends real ones."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf

from agent_rl.verl_adapter import stragglers
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.stragglers import Stragglers

PROMPTS, N = 10, 5


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(ray, "get", list)
    return []


def make(calls: list[str], share: float, limit_s: float | None = None, estimator: str = "grpo") -> Stragglers:
    workers = [SimpleNamespace(end_sessions=SimpleNamespace(remote=lambda: calls.append("ended")))]
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"n": N}}, "algorithm": {"adv_estimator": estimator}})
    trainer: Any = SimpleNamespace(config=config, agent_loop_manager=SimpleNamespace(agent_loop_workers=workers))
    step = Stragglers(trainer, share, limit_s)
    step.begin()
    return step


UIDS = [f"prompt{number}" for number in range(PROMPTS)]


def lost(*sessions: str, **more: object) -> dict[str, dict[str, object]]:
    return {session: {"validate": False, **more} for session in sessions}


def keys(sessions: int) -> list[str]:
    """The keys of ended sessions, each of which has two sequences."""
    return [f"prompt{number // N}_{number % N}_{index}" for number in range(sessions) for index in (0, 1)]


@pytest.mark.parametrize(
    ("share", "ended", "failed", "is_ended"),
    [
        (0.04, 47, {}, False),
        (0.04, 48, {}, True),
        (0.04, 45, lost("prompt9_1", "prompt9_2", "prompt9_3"), True),
        (0.04, 47, lost("prompt9_3", scored=True), False),
        (0.04, 47, lost("evicted_3"), False),
        (0.04, 47, {"prompt9_3": {"validate": True}}, False),
        (0.04, 50, {}, False),
        (0.04, 47, lost("prompt9_2", "prompt9_3", "prompt9_4"), False),
        (0, 49, {}, False),
    ],
)
def test_the_last_sessions_end_when_all_others_have(
    calls: list[str], share: float, ended: int, failed: Any, is_ended: bool
) -> None:
    step = make(calls, share)
    step.look(UIDS, keys(ended), failed)
    assert (len(calls), step.are_ended) == (is_ended, is_ended)
    step.begin()
    assert not step.are_ended


def test_a_failed_greedy_session_is_no_sample(calls: list[str]) -> None:
    step = make(calls, 0.04, estimator=remax.ESTIMATOR)
    step.look(UIDS, keys(47), lost("prompt1_0"))
    assert calls == []
    step.look(UIDS, keys(47), lost("prompt1_0", "prompt1_5"))
    assert calls == ["ended"]


def test_all_sessions_end_when_the_time_is_up(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stragglers, "time", SimpleNamespace(monotonic=lambda: now))
    step = make(calls, 0, 60)
    now = 160.0
    step.look(UIDS, keys(3), {})
    assert calls == []
    now = 160.5
    step.look(UIDS, keys(3), {})
    assert calls == ["ended"]
