"""A trainer that waits for a dead process, or for a weight sync that never ends, stops, with the last step saved.

verl's own loop saves the last step of a run that stops. tests/e2e has real runs, and kills real processes.
"""

import json
import re
import signal
import threading
import time
from types import SimpleNamespace

import pytest
from ray.exceptions import RayActorError

from agent_rl.errors import FatalError
from agent_rl.verl_adapter import ending
from agent_rl.verl_adapter.ending import SIGNAL, StallError, watched
from tests.support.forks import python

LIMIT_S = 0.2


def fit(wait):
    """A trainer's `fit` that does this."""
    with ending.stalls_raised(SimpleNamespace(), LIMIT_S):
        return wait()


@pytest.mark.parametrize("wait", [lambda: time.sleep(60), lambda: threading.Event().wait()])
def test_whatever_the_trainer_waits_for_ends(wait, monkeypatch):
    before, error = signal.getsignal(SIGNAL), StallError("the process of AgentLoopWorkerTQ has died")
    found = iter([None, None, error])
    monkeypatch.setattr(ending, "INTERVAL_S", 0.05)
    monkeypatch.setattr(ending, "_lost", lambda: next(found))
    started = time.monotonic()
    with pytest.raises(StallError, match="has died"):
        fit(wait)
    assert time.monotonic() - started < 30
    assert signal.getsignal(SIGNAL) == before


@pytest.mark.parametrize("lost", [StallError("the process of AgentLoopWorkerTQ has died"), None])
@pytest.mark.parametrize("error", [RayActorError(), FatalError("a session reported ActorDiedError")])
def test_a_dead_process_that_verl_has_asked_is_named_too(error, lost, monkeypatch):

    def ask():
        raise error

    monkeypatch.setattr(ending, "_lost", lambda: lost)
    with pytest.raises(type(lost or error)) as caught:
        fit(ask)
    assert caught.value is (lost or error)


def test_a_run_that_ends_is_watched_no_longer(monkeypatch):
    looks = []
    monkeypatch.setattr(ending, "INTERVAL_S", 0.01)
    monkeypatch.setattr(ending, "_lost", lambda: looks.append(1))
    assert fit(lambda: time.sleep(0.2) or "trained") == "trained"
    assert looks
    assert not [each for each in threading.enumerate() if each.name == "agent_rl_watch"]


@pytest.mark.parametrize(
    ("name", "said", "cause", "has_store"),
    [
        ("AgentLoopWorkerTQ", "reason: WORKER_DIED", "out of memory?", True),
        ("AgentRewardLoopWorker", "reason: WORKER_DIED", "out of memory?", True),
        ("SimpleStorageUnit", "Worker exit type: NODE_OUT_OF_MEMORY", "it ran out of memory", False),
        ("AgentLoopWorker", "actor_died_error_context { reason: NODE_DIED }", "its node was lost", True),
        ("WorkerDict", "", None, True),
    ],
)
def test_only_processes_whose_end_would_go_unnoticed_are_watched(name, said, cause, has_store, monkeypatch):
    ray, state = pytest.importorskip("ray"), pytest.importorskip("ray._private.state")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_job_id=lambda: "01000000"))
    dead = {"ActorClassName": name, "Pid": 7, "DeathCause": said}
    monkeypatch.setattr(state, "actors", lambda job_id, actor_state_name: {"id": dead})
    error = ending._lost()
    if cause is None:
        assert error is None
    else:
        assert cause in str(error)
        assert error.has_store == has_store


STALLS = """
import signal, tempfile, time, verl
from tests.verl_adapter.trainers import make, train
from agent_rl.verl_adapter.ending import SIGNAL

def run(can_save):
    folder = tempfile.mkdtemp()
    config = {"agent_rl.run.folder": folder, "agent_rl.run.weight_sync_timeout_s": 0.2, "trainer.total_epochs": 1,
              "trainer.default_local_dir": folder, "trainer.save_freq": -1, "trainer.test_freq": -1}
    before = signal.getsignal(SIGNAL)
    trainer = make(config=config)
    done = train(trainer, sync=lambda step: time.sleep(60 * (step == 2)), save=lambda: time.sleep(60 * (not can_save)))
    assert signal.getsignal(SIGNAL) == before
    return done

print(json.dumps([run(True), run(False)]))
"""


def test_a_stalled_sync_ends_the_run_and_names_the_issue_and_the_limit() -> None:
    saved, unsaved = json.loads(python("import json" + STALLS))
    for (*done, error), had, said in (
        (saved, ["checkpoint 2"], "Step 2 is saved in"),
        (unsaved, [], "its checkpoint could not be written"),
    ):
        assert done == ["step 1", "step 2", *had]
        assert re.match(r"FatalError: .*weight_sync_timeout_s=0.2 .*verl/issues/7990", error)
        assert said in error


def test_a_block_within_the_limit_is_left_alone_and_the_error_is_that_of_the_block_that_is_late() -> None:
    with watched(lambda: FatalError("late"), LIMIT_S):
        pass
    time.sleep(1.5 * LIMIT_S)
    for outer, inner, late in ((LIMIT_S, 60, "outer"), (60, LIMIT_S, "inner")):
        with pytest.raises(FatalError, match=late), watched(lambda: FatalError("outer"), outer):
            with watched(lambda: FatalError("inner"), inner):
                time.sleep(60)


STOPS = """
import json, tempfile, verl
from pathlib import Path
from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV as env
from agent_rl.errors import UnscoredError
from tests.verl_adapter.trainers import make, train

folder = Path(tempfile.mkdtemp())
(folder / "latest_checkpointed_iteration.txt").write_text("2")  # of an earlier run, which was not resumed

def run(update, **parts):
    config = {"agent_rl.run.folder": str(folder), "trainer.default_local_dir": str(folder), "trainer.save_freq": 3,
              "trainer.test_freq": 2, "trainer.total_epochs": 1}
    trainer = make(config=config)
    return train(trainer, lambda: update(trainer.global_steps, trainer), **parts)

def fail(step, trainer):
    if step == 3: raise UnscoredError("no score")

def ask(step, trainer):
    if step == 2: (folder / "stop").touch()

def sample(step, trainer):
    trainer.on_sample_end()

def report(batch, metrics, timing, global_steps, epoch):
    if global_steps == 2: raise UnscoredError("too many")

failed, asked = run(fail), run(ask)
ended = failed.pop().replace(str(folder), "FOLDER")
order, answer = [], (folder / "stop").read_text()
run(sample, sleep=lambda: order.append("sleep"), save=lambda: order.append("save"), log=report)
print(json.dumps([order, failed, ended, asked, answer, "AGENT_RL_COMMAND" in env["env_vars"]]))
"""


def test_a_run_that_fails_or_is_asked_to_stop_saves_its_last_complete_step() -> None:
    order, failed, ended, asked, answer, has_command = json.loads(python(STOPS))
    assert order == ["sleep", "sleep", "sleep", "save"]  # after two samplings, and to make room for the checkpoint
    assert failed == ["step 1", "step 2", "validation 2", "checkpoint 2"]
    assert ended.startswith(
        "UnscoredError: no score. Step 2 is saved in FOLDER/global_step_2: fix the problem, and resume"
    )
    assert asked == ["step 1", "step 2", "checkpoint 2"]  # the last one, without a validation
    assert json.loads(answer)["step"] == 2
    assert has_command
