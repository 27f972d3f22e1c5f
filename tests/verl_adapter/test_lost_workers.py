"""How a trainer that waits is told of a process that has died; tests/e2e/test_faults.py kills real ones."""

import signal
import threading
import time
from types import SimpleNamespace

import pytest

from agent_rl.verl_adapter import lost_workers
from agent_rl.verl_adapter.lost_workers import SIGNAL, LostProcessError


def trainer(fit):
    """verl's module with a trainer that does this, and the patch."""
    module = SimpleNamespace(PPOTrainer=type("PPOTrainer", (), {"fit": fit}))
    lost_workers.stop_without_workers(module)
    return module.PPOTrainer()


@pytest.mark.parametrize("wait", [lambda: time.sleep(60), lambda: threading.Event().wait()])
def test_whatever_the_trainer_waits_for_ends(wait, monkeypatch):
    before, error = signal.getsignal(SIGNAL), LostProcessError("the process of AgentLoopWorkerTQ has died")
    found = iter([None, None, error])
    monkeypatch.setattr(lost_workers, "INTERVAL_S", 0.05)
    monkeypatch.setattr(lost_workers, "_lost", lambda: next(found))
    started = time.monotonic()
    with pytest.raises(LostProcessError, match="has died"):
        trainer(lambda self: wait()).fit()
    assert time.monotonic() - started < 30
    assert signal.getsignal(SIGNAL) == before


def test_a_run_that_ends_is_watched_no_longer(monkeypatch):
    looks = []
    monkeypatch.setattr(lost_workers, "INTERVAL_S", 0.01)
    monkeypatch.setattr(lost_workers, "_lost", lambda: looks.append(1))
    assert trainer(lambda self: time.sleep(0.2) or "trained").fit() == "trained"
    (watching,) = [each for each in threading.enumerate() if each.name == "agent_rl_lost_workers"] or [None]
    if watching is not None:
        watching.join(5)
        assert not watching.is_alive()
    assert looks


@pytest.mark.parametrize(
    ("name", "said", "cause", "has_store"),
    [
        ("AgentLoopWorkerTQ", "reason: WORKER_DIED", "is memory short?", True),
        ("SimpleStorageUnit", "Worker exit type: NODE_OUT_OF_MEMORY", "memory was short", False),
        ("WorkerDict", "", None, True),
    ],
)
def test_only_processes_that_nobody_asks_are_watched(name, said, cause, has_store, monkeypatch):
    ray, state = pytest.importorskip("ray"), pytest.importorskip("ray._private.state")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "01000000"))
    dead = {"ActorClassName": name, "Pid": 7, "DeathCause": said}
    monkeypatch.setattr(state, "actors", lambda job_id, actor_state_name: {"id": dead})
    error = lost_workers._lost()
    if cause is None:
        assert error is None
    else:
        assert cause in str(error)
        assert error.has_store == has_store
