"""Faults of every owner in one training step; a fatal one; and a driver that is killed."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agent_rl.cpu.fork_server import fork_server
from agent_rl.launch.command import trainer_command
from agent_rl.launch.process import TrainerError, remove_unused, shared_files
from agent_rl.trajectory import StopReason, ToolStatus, Trajectory, trace
from agent_rl.trajectory.run_files import read_metrics
from tests.e2e.conftest import gone, marked_run
from tests.e2e.training import run_alone
from tests.support.rows import sum_row

ROOT = Path(__file__).parents[2]
FAULTS = ("tool_raises", "tool_hangs", "malformed_row", "engine_fails")

pytestmark = pytest.mark.engine


def overrides(folder: Path, model: Path, **more: Any) -> list[str]:
    settings = {
        "data.train_files": f"{folder}/rows.parquet",
        "data.val_files": f"{folder}/rows.parquet",
        "data.train_batch_size": 4,
        "data.max_prompt_length": 256,
        "data.max_response_length": 128,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.rollout.n": 2,
        "actor_rollout_ref.rollout.multi_turn.tool_config_path": ROOT / "tests/e2e/faulty_tools.yaml",
        "trainer.val_before_train": False,
        "trainer.total_training_steps": 1,
        "trainer.logger": "[console,file]",
        "agent_rl.run.folder": folder,
        "agent_rl.tools.on_error": "observe",
        "hydra.run.dir": f"{folder}/hydra",
        **more,
    }
    return [f"{key}={value}" for key, value in settings.items()]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    write_rows(tmp_path)
    return tmp_path


def write_rows(folder: Path, faults: Sequence[str] = FAULTS) -> None:
    """One row for each fault, written past our own checks: a row that is malformed must not get that far otherwise."""
    table = []
    for index, fault in enumerate(faults):
        one = sum_row(
            index, ground_truth=4, data_source="gsm8k_faults", agent_name="faulty", extra_info={"fault": fault}
        )
        if fault == "malformed_row":
            one["reward_model"]["ground_truth"] = "not a number"
        table.append(one)
    pq.write_table(pa.Table.from_pylist(table), folder / "rows.parquet")


@dataclass(frozen=True)
class Run:
    """A step with every fault, after which the driver was killed."""

    metrics: dict[str, Any]
    trajectories: list[Trajectory]
    """Of the step."""
    left: list[str]
    """Processes."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Run:
    folder = tmp_path_factory.mktemp("faults")
    write_rows(folder)
    temporary = tempfile.mkdtemp(prefix="agent_rl_")  # Ray's sockets need a short path
    before = shared_files()
    environment = {"VERL_FILE_LOGGER_PATH": f"{folder}/metrics.jsonl", "RAY_TMPDIR": temporary, "TMPDIR": temporary}
    with marked_run(**environment) as find:
        command = trainer_command(
            ROOT / "recipes/quickstart",
            overrides(folder, tiny_model, **{"trainer.total_training_steps": 1000}),
            script=ROOT / "tests/e2e/faults_train.py",
        )
        with (
            open(folder / "log", "wb") as log,
            fork_server(os.environ, log) as forks,
            subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **forks}) as driver,
        ):
            deadline = time.monotonic() + 300
            while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").read_text().strip():
                assert driver.poll() is None, (folder / "log").read_text()[-3000:]
                assert time.monotonic() < deadline
                time.sleep(0.2)
            assert len(find()) > 5
            driver.kill()
        left = gone(find, 60)
    shutil.rmtree(temporary, ignore_errors=True)
    remove_unused(shared_files() - before)
    first = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert first["step"] == 1
    traced = [each for each in trace.read(folder / "trace.jsonl") if each.info["step"] == 1]
    return Run(first["data"], traced, left)


def test_every_fault_ends_as_its_owner_says_and_the_step_completes(run: Run) -> None:
    assert run.metrics["agent/unscored"] == 4  # two rows, two samples each: neither zero nor lost
    assert run.metrics["agent/tool_errors"] == 1
    kept: dict[str, list[Trajectory]] = {fault: [] for fault in FAULTS}
    for trajectory in run.trajectories:
        kept[FAULTS[trajectory.info["index"]]].append(trajectory)
    assert {fault: len(of_fault) for fault, of_fault in kept.items()} == dict.fromkeys(FAULTS, 2)
    for trajectory in kept["tool_raises"]:
        assert trajectory.results[0].status is ToolStatus.ERROR
        assert trajectory.turns[0].observation is not None
        assert "the tool's own bug" in trajectory.turns[0].observation
        assert trajectory.score is not None
    for trajectory in kept["tool_hangs"]:
        assert trajectory.results[0].status is ToolStatus.TIMEOUT
        assert trajectory.results[0].seconds < 3
        assert trajectory.score is not None
    for trajectory in kept["malformed_row"]:
        assert trajectory.score is None
        assert "not a number" in str(trajectory.error)
    for trajectory in kept["engine_fails"]:
        assert trajectory.stop_reason is StopReason.ENGINE_ERROR
        assert trajectory.score is None
        assert "the engine went away" in str(trajectory.error)
        assert len(trajectory.turns) == 1  # what happened before the failure is kept


def test_a_killed_driver_leaves_no_process_behind(run: Run) -> None:
    assert run.left == []


@pytest.mark.recipes
@pytest.mark.parametrize(
    ("name", "said", "groups"),
    [
        ("SGLangHttpServer", "SGLang's process scheduler_0: ended by SIGKILL", ()),
        ("AgentLoopWorker", r"the AgentLoopWorker process .*Step \d+ is saved in .*global_step", ()),
        ("SimpleStorageUnit", "the SimpleStorageUnit process .* has died", ()),
        ("SimpleStorageUnit", "the SimpleStorageUnit process .* has died", ("mode=colocate_async",)),
    ],
)
def test_a_killed_process_ends_a_run_in_the_background_of_a_shell(
    name: str, said: str, groups: tuple[str, ...], rows: Path, tiny_model: Path
) -> None:
    """The checkpoints that the run has written stay.

    Such a job ignores SIGQUIT, by which SGLang's processes report. Of an engine's server its scheduler is killed.
    """
    write_rows(rows, ("answers",) * 4)
    keys = {"trainer.total_training_steps": 1000, "trainer.total_epochs": 1000, "trainer.save_freq": 1}
    words = [*groups, *overrides(rows, tiny_model, **keys)]
    command = trainer_command(ROOT / "recipes/quickstart", words, script=ROOT / "tests/e2e/faults_train.py")

    def kill(step: int, metrics: dict[str, Any]) -> None:
        if step == 2:
            (found,) = [each for each in psutil.Process().children(recursive=True) if name in each.name()]
            under = found.children(recursive=True) if name == "SGLangHttpServer" else [found]
            max(under, key=lambda each: sum(each.cpu_times()[:2])).kill()

    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    try:
        with pytest.raises(TrainerError, match=said):
            run_alone(command, rows / "out", on_metrics=kill, timeout_s=200)
    finally:
        signal.signal(signal.SIGQUIT, before)
    newest = int((rows / "checkpoints/latest_checkpointed_iteration.txt").read_text())
    assert newest >= 2
    assert (rows / f"checkpoints/global_step_{newest}/data.pt").is_file()


@pytest.mark.recipes
def test_a_run_of_which_too_much_goes_unscored_stops_and_says_so(rows: Path, tiny_model: Path) -> None:
    """Half of the trajectories have no score, and a quarter may."""
    command = trainer_command(
        ROOT / "recipes/quickstart",
        overrides(rows, tiny_model, **{"agent_rl.reward.max_unscored_share": 0.25}),
        script=ROOT / "tests/e2e/faults_train.py",
    )
    with pytest.raises(TrainerError, match="4 of 8 trajectories of the step are unscored") as caught:
        run_alone(command, rows / "out", timeout_s=300)
    assert "the engine went away" in str(caught.value)
    (step,) = read_metrics(rows / "out")  # the step is saved, and a resumed run continues after it
    assert step["agent/unscored"] == 4


@pytest.mark.recipes
def test_the_same_bug_of_a_tool_stops_the_run_at_the_eighth_time_whenever_that_is(rows: Path, tiny_model: Path) -> None:
    """One of four prompts calls a tool with a bug, twice in each step: no step has too many without a score."""
    write_rows(rows, ("tool_raises", "answers", "answers", "answers"))
    keys = {"agent_rl.tools.on_error": "unscored", "trainer.total_training_steps": 50, "trainer.total_epochs": 50}
    command = trainer_command(
        ROOT / "recipes/quickstart", overrides(rows, tiny_model, **keys), script=ROOT / "tests/e2e/faults_train.py"
    )
    with pytest.raises(TrainerError, match=r"tool 'raises' failed at .*faulty_tools\.py:17: Zero") as caught:
        run_alone(command, rows / "out", timeout_s=400)
    assert "This bug occurred 8 times" in str(caught.value)
    steps = [each for each in read_metrics(rows / "out") if each["step"]]
    assert [each["agent/unscored"] for each in steps] == [2.0, 2.0, 2.0]


def test_a_wrong_key_stops_the_run_before_ray_starts(
    rows: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a Ray that does not run: what a local one is started with is not started, which takes seconds."""
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    command = trainer_command(
        ROOT / "recipes/quickstart", overrides(rows, tiny_model, **{"agent_rl.reward.eficiency.penalty": 1})
    )
    with pytest.raises(TrainerError, match=r"agent_rl\.reward\.eficiency: unknown key") as caught:
        run_alone(command, rows / "out", timeout_s=100)
    assert "Did you mean 'efficiency'?" in str(caught.value)
    assert caught.value.status == 2
    log = (rows / "out/train.log").read_text()
    assert "Started a local Ray instance" not in log
    assert "Connecting to existing Ray cluster" not in log
