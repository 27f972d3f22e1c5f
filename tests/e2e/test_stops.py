"""Runs that end early are saved and go on: a component raises, or somebody asks, at every moment of a run.

No other run stops by an error after a step, and goes on afterwards; the asynchronous modes also save what is in flight.
"""

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from agent_rl.launch.process import TrainerError
from agent_rl.launch.stopping import StoppedRun, StopRequest
from agent_rl.trajectory import trace
from agent_rl.trajectory.viewer.report import read_run
from tests.e2e.conftest import FindProcesses, gone
from tests.e2e.training import PROMPTS, ROOT, KeptRequest, overrides, run_alone, train
from tests.support.interrupts import heed_interrupts

pytestmark = [pytest.mark.engine, pytest.mark.recipes]

COMPONENT = """
from agent_rl import Component

class Mine(Component):
    async def measure(self, trajectory):
        if trajectory.info.get("step") == 3:
            return trajectory.row["levle"]
        return len(trajectory.turns) / 100
"""

SLOW_VALIDATION = """
import asyncio
import pathlib

from agent_rl import Component

class Mine(Component):
    async def measure(self, trajectory):
        if trajectory.info["split"] == "test":
            pathlib.Path(FOLDER, "stop").touch()
            await asyncio.sleep(40)
        return len(trajectory.turns) / 100
"""
"""Asks in the middle of a validation that nobody wants to wait for."""


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_run_that_is_asked_to_end_is_saved_and_goes_on(mode: str, tmp_path: Path, tiny_model: Path) -> None:
    """In a step, in a validation, while a checkpoint is written; each start goes on where the one before ended."""
    component, last = tmp_path / "mine.py", 9
    component.write_text(SLOW_VALIDATION.replace("FOLDER", repr(str(tmp_path))))
    logged: dict[int, dict[str, Any]] = {}

    def start(on_step: Any = None, **settings: Any) -> StoppedRun | None:
        request.begin(tmp_path)
        found = train(
            tmp_path,
            tiny_model,
            f"mode={mode}",
            on_step=on_step,
            stopping=request,
            reward__reward_manager__name="trajectory",
            reward__custom_reward_function__path="null",
            agent_rl__reward__components__mine__kind=f"{component}:Mine",
            trainer__resume_mode="auto",
            trainer__total_training_steps=last,
            **{"trainer__save_freq": -1, "trainer__test_freq": -1, **settings},
        )
        assert not logged.keys() & found.keys()
        logged.update(found)
        return request.answered

    request = KeptRequest()
    in_a_step = start(lambda step: request.ask())
    assert in_a_step is not None
    assert in_a_step.step in (2, 3)  # a step takes a second, and its metrics are read twice a second
    assert in_a_step.checkpoint == f"{tmp_path}/checkpoints/global_step_{in_a_step.step}"

    began = time.monotonic()
    in_a_validation = start(trainer__test_freq=1)
    assert in_a_validation is not None
    assert in_a_validation.step == in_a_step.step + 1
    assert not any(key.startswith("val-") for key in logged[in_a_validation.step])
    assert time.monotonic() - began < 40 + 40  # neither the validation nor its end has been waited for

    saved = Path(f"{tmp_path}/checkpoints/global_step_{in_a_validation.step + 1}")
    moment: list[bool] = []
    threading.Thread(target=lambda: moment.append(ask_when_it_appears(request, saved)), daemon=True).start()
    while_saving = start(trainer__save_freq=1)
    assert moment == [False]  # it was not complete
    assert while_saving is not None
    assert while_saving.step == in_a_validation.step + 1

    assert start() is None
    assert list(logged) == list(range(1, last + 1))
    if mode == "sync":
        rows = sorted((each.info["step"], each.info["index"]) for each in trace.read(tmp_path / "trace.jsonl")
                      if each.info["split"] == "train")  # fmt: skip
        steps = [step for step in logged for _ in range(2 * PROMPTS)]
        assert [step for step, _ in rows] == steps
        assert all(index // PROMPTS == (step - 1) % 4 for step, index in rows)


def ask_when_it_appears(request: StopRequest, folder: Path) -> bool:
    """Ask as soon as a checkpoint's folder is there; whether it is complete by then."""
    while not folder.exists():
        time.sleep(0.002)
    request.ask()
    return (folder / "data.pt").exists()


def test_signals_end_a_run_and_its_exit_status_says_how(
    tmp_path: Path, tiny_model: Path, run_processes: FindProcesses
) -> None:
    """Before the first step at once; twice at once; once after the step, and the command that is printed goes on."""
    given = overrides(tmp_path, tiny_model, trainer__total_training_steps=50, trainer__resume_mode="auto")
    command = [sys.executable, "-m", "agent_rl.cli.main", "train", str(ROOT / "recipes/quickstart"), "--json", *given]

    status, records = interrupted(command, tmp_path, "started: Ray", signal.SIGTERM)
    assert (status, [each["event"] for each in records]) == (143, ["end"])
    assert (records[0]["status"], records[0]["step"]) == ("aborted", None)
    assert str(read_run(str(tmp_path)).state).startswith("aborted before the first step")
    assert gone(run_processes, 0) == []

    status, records = interrupted(command, tmp_path, '"event": "step"', signal.SIGINT)
    assert status == records[-1]["exit_code"] == 75
    steps = [each["step"] for each in records if each["event"] == "step"]
    assert (records[-1]["status"], records[-1]["step"]) == ("stopped", steps[-1])
    assert str(read_run(str(tmp_path)).state).startswith(f"stopped after step {steps[-1]}")
    assert steps == list(range(1, len(steps) + 1))
    assert Path(records[-1]["checkpoint"]).name == f"global_step_{steps[-1]}"
    assert gone(run_processes, 0) == []

    again = shlex.split(records[-1]["command"])
    status, records = interrupted(again, tmp_path, '"event": "step"', signal.SIGINT, signal.SIGINT)
    assert (status, records[-1]["status"]) == (130, "aborted")
    assert read_run(str(tmp_path)).state.status == "aborted"
    assert records[0]["step"] == steps[-1] + 1
    assert gone(run_processes, 0) == []


def interrupted(
    command: list[str], folder: Path, until: str, *signals: signal.Signals
) -> tuple[int, list[dict[str, Any]]]:
    """Run a command, and send it signals when it has printed something; its exit status and its records."""
    log = folder / "printed"
    with open(log, "wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT, preexec_fn=heed_interrupts)
        while until not in log.read_text():
            assert child.poll() is None, log.read_text()
            time.sleep(0.05)
        for each in signals:
            child.send_signal(each)
            time.sleep(0.2)
        status = child.wait(120)
    return status, [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("mode", ["sync", "colocate_async", "separate_async"])
def test_a_run_that_a_component_stops_is_saved_and_goes_on(mode: str, tmp_path: Path, tiny_model: Path) -> None:
    component, last = tmp_path / "mine.py", 3 if mode == "sync" else 6
    component.write_text(COMPONENT)
    with pytest.raises(TrainerError, match=f"mine failed at {component}:7: KeyError: 'levle'") as caught:
        train(
            tmp_path,
            tiny_model,
            f"mode={mode}",
            reward__reward_manager__name="trajectory",
            reward__custom_reward_function__path="null",
            agent_rl__reward__components__mine__kind=f"{component}:Mine",
            agent_rl__trace__path=tmp_path / "trace.jsonl",
            trainer__default_local_dir=tmp_path / "checkpoints",
            trainer__resume_mode="auto",
            trainer__save_freq=-1,
            trainer__rollout_data_dir=tmp_path / "rollouts",
            trainer__total_training_steps=last,
        )
    log = (tmp_path / "out/train.log").read_text()
    assert "never retrieved" not in log
    assert "Repeat the call with: agent-rl reward score" in str(caught.value)
    said = re.search(r"Step (\d) is saved in (\S+): fix the problem, and resume with: (.+)", str(caught.value))
    assert said
    complete = int(said[1])
    assert complete == 2 or (mode != "sync" and 1 <= complete < last)  # rows of step 3 are scored while others train
    assert Path(said[2]) == tmp_path / f"checkpoints/global_step_{complete}"
    stopped = [each.info["index"] for each in trace.read(tmp_path / "trace.jsonl") if each.info["step"] == 3]
    component.write_text(COMPONENT.replace('trajectory.row["levle"]', "0.5"))
    logged: dict[int, dict[str, Any]] = {}
    run_alone(shlex.split(said[3]), tmp_path / "again", on_metrics=logged.__setitem__, timeout_s=500)
    assert list(logged) == list(range(complete + 1, last + 1))
    if mode != "sync":
        return
    again = [each for each in trace.read(tmp_path / "trace.jsonl") if each.info["step"] == 3 and each.score]
    assert sorted(each.info["index"] for each in again) == sorted(2 * list(range(2 * PROMPTS, 3 * PROMPTS)))
    assert set(stopped) <= {each.info["index"] for each in again}  # the rows of the step that was not completed
