"""A trainer that waits for a dead process, or for a weight sync that never ends, stops, with the last step saved.

tests/e2e/test_faults.py kills real processes.
"""

import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import FatalError
from agent_rl.verl_adapter import last_step, stalls
from agent_rl.verl_adapter.stalls import SIGNAL, LostProcessError, watched

LIMIT_S = 0.2


def trainer(fit):
    """verl's module with a trainer that does this, and the patch."""
    config = OmegaConf.create({"agent_rl": {}})
    module = SimpleNamespace(PPOTrainer=type("PPOTrainer", (), {"fit": fit, "config": config}))
    stalls.stop_stalled(module)
    return module.PPOTrainer()


@pytest.mark.parametrize("wait", [lambda: time.sleep(60), lambda: threading.Event().wait()])
def test_whatever_the_trainer_waits_for_ends(wait, monkeypatch):
    before, error = signal.getsignal(SIGNAL), LostProcessError("the process of AgentLoopWorkerTQ has died")
    found = iter([None, None, error])
    monkeypatch.setattr(stalls, "INTERVAL_S", 0.05)
    monkeypatch.setattr(stalls, "_lost", lambda: next(found))
    started = time.monotonic()
    with pytest.raises(LostProcessError, match="has died"):
        trainer(lambda self: wait()).fit()
    assert time.monotonic() - started < 30
    assert signal.getsignal(SIGNAL) == before


@pytest.mark.parametrize("lost", [LostProcessError("the process of AgentLoopWorkerTQ has died"), None])
def test_a_dead_process_that_verl_has_asked_is_named_too(lost, monkeypatch):
    error = pytest.importorskip("ray.exceptions").RayActorError()

    def fit(self):
        raise error

    monkeypatch.setattr(stalls, "_lost", lambda: lost)
    with pytest.raises(type(lost or error)) as caught:
        trainer(fit).fit()
    assert caught.value is (lost or error)


def test_a_run_that_ends_is_watched_no_longer(monkeypatch):
    looks = []
    monkeypatch.setattr(stalls, "INTERVAL_S", 0.01)
    monkeypatch.setattr(stalls, "_lost", lambda: looks.append(1))
    assert trainer(lambda self: time.sleep(0.2) or "trained").fit() == "trained"
    (watching,) = [each for each in threading.enumerate() if each.name == "agent_rl_watch"] or [None]
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
    error = stalls._lost()
    if cause is None:
        assert error is None
    else:
        assert cause in str(error)
        assert error.has_store == has_store


def stalled(*_: Any) -> None:
    time.sleep(60)


class Trainer:
    """As much of verl's as a run of two steps needs, whose second sync stalls."""

    trainer_mode = "sync"

    def __init__(self, folder: Path, can_save: bool) -> None:
        run = {"folder": str(folder), "weight_sync_timeout_s": LIMIT_S}
        trainer = {"default_local_dir": str(folder), "resume_mode": "auto"}
        self.config = OmegaConf.create({"agent_rl": {"run": run}, "trainer": trainer})
        self.global_steps, self.total_training_steps, self.saved, self.can_save = 0, 9, list[int](), can_save
        self.train_dataloader = SimpleNamespace(state_dict=dict)
        self.replay_buffer = SimpleNamespace()
        self.checkpoint_manager = SimpleNamespace(update_weights=lambda step: None if step == 1 else stalled())

    def step(self) -> None: ...

    def _validate(self) -> None: ...

    def _save_checkpoint(self) -> None:
        if not self.can_save:
            stalled()
        self.saved.append(self.global_steps)

    def fit(self) -> None:
        for self.global_steps in (1, 2):
            self.step()
            self.checkpoint_manager.update_weights(self.global_steps)


@pytest.mark.parametrize("can_save", [True, False])
def test_a_stalled_sync_ends_the_run_and_names_the_issue_and_the_limit(tmp_path: Path, can_save: bool) -> None:
    cls = type("PPOTrainer", (Trainer,), {})
    module: Any = SimpleNamespace(PPOTrainer=cls, tq=SimpleNamespace(kv_list=lambda _: None))
    stalls.stop_stalled(module)
    last_step.save_at_stop(module)
    trainer, before = cls(tmp_path, can_save), signal.getsignal(SIGNAL)
    with pytest.raises(FatalError, match=rf"weight_sync_timeout_s={LIMIT_S} .*verl/issues/7990") as caught:
        trainer.fit()
    assert trainer.saved == [2] * can_save
    assert ("Step 2 is saved in" if can_save else "its checkpoint could not be written") in str(caught.value)
    assert signal.getsignal(SIGNAL) == before


def test_a_block_within_the_limit_is_left_alone() -> None:
    with watched(lambda: FatalError("late"), LIMIT_S):
        pass
    time.sleep(1.5 * LIMIT_S)


def test_the_error_of_an_outer_block_is_raised_in_an_inner_one() -> None:
    with pytest.raises(FatalError, match="outer"), watched(lambda: FatalError("outer"), LIMIT_S):
        with watched(lambda: FatalError("inner"), 60):
            time.sleep(60)
    with pytest.raises(FatalError, match="inner"), watched(lambda: FatalError("outer"), 60):
        with watched(lambda: FatalError("inner"), LIMIT_S):
            time.sleep(60)
