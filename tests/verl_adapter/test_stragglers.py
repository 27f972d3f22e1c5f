"""When the last sessions of a step are ended; tests/e2e/test_stragglers.py ends real ones."""

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from omegaconf import OmegaConf

from agent_rl.verl_adapter import stragglers
from agent_rl.verl_adapter.stragglers import Stragglers

PROMPTS, N = 10, 5


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(ray, "get", list)
    return []


def make(calls: list[str], share: float, limit_s: float | None = None) -> Stragglers:
    workers = [SimpleNamespace(end_sessions=SimpleNamespace(remote=lambda: calls.append("ended")))]
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"n": N}}})
    trainer: Any = SimpleNamespace(config=config, agent_loop_manager=SimpleNamespace(agent_loop_workers=workers))
    step = Stragglers(trainer, share, limit_s)
    step.begin()
    return step


def keys(sessions: int) -> list[str]:
    """The keys of ended sessions, each of which has two sequences."""
    return [f"prompt{number // N}_{number % N}_{index}" for number in range(sessions) for index in (0, 1)]


@pytest.mark.parametrize(
    ("share", "ended", "failed", "count"),
    [(0.04, 47, 0, 0), (0.04, 48, 0, 1), (0.04, 45, 3, 1), (0.04, 50, 0, 0), (0.04, 47, 3, 0), (0, 49, 0, 0)],
)
def test_the_last_sessions_end_when_all_others_have(
    calls: list[str], share: float, ended: int, failed: int, count: int
) -> None:
    step = make(calls, share)
    for _ in range(2):  # only once in a step
        step.look(PROMPTS, keys(ended), failed)
    assert (len(calls), step.are_ended) == (count, bool(count))
    step.begin()
    step.look(PROMPTS, keys(ended), failed)
    assert len(calls) == 2 * count


def test_all_sessions_end_when_the_time_is_up(calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(stragglers, "time", SimpleNamespace(monotonic=lambda: now))
    step = make(calls, 0, 60)
    now = 160.0
    step.look(PROMPTS, keys(3), 0)
    assert calls == []
    now = 160.5
    step.look(PROMPTS, keys(3), 0)
    assert calls == ["ended"]
