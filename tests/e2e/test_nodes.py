"""Two nodes on this machine: two launchers with a rank each, and two Ray nodes with their own ports and resources."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_rl.data import arithmetic, write_parquet
from agent_rl.launch.environment import LONGEST
from tests.e2e.conftest import FindProcesses, gone

ROOT = Path(__file__).parents[2]
PARTS = ROOT / "tests/e2e/nodes_parts.py"

LAUNCHER = """
import os, sys
del os.environ["VERL_PLATFORM"]
from agent_rl.launch import cluster, process, stopping
nodes = cluster.Nodes.from_environment()
sizes = ["--num-cpus=4", "--num-gpus=1", "--object-store-memory=80000000"]
command = [sys.executable, "-c", sys.argv[2]] if len(sys.argv) > 2 else []
asked = stopping.StopRequest()
with asked.on_signals():
    if nodes.rank:
        sys.exit(cluster.run_worker(nodes, sizes, float(sys.argv[1]), asked))
    with cluster.head(nodes, [*sizes, "--include-dashboard=false"], float(sys.argv[1])) as (env, watch):
        try:
            process.run_trainer(command, sys.argv[3], environ=env, watch=watch, on_output=print)
        except process.TrainerError as error:
            sys.exit(error.status)
"""
"""The launcher without a recipe: `python -c LAUNCHER seconds-to-wait driver folder`."""

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_processes: FindProcesses) -> Iterator[Start]:
    """Starts the launcher of a rank, its output in `rank<N>.log`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("NNODES", "2")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    temporary = tempfile.mkdtemp(prefix="agent_rl_")

    def launch(rank: int, *command: str) -> subprocess.Popen[bytes]:
        longest = f"{temporary}/{rank}".ljust(LONGEST, "_")
        node = {"NODE_RANK": str(rank), "RAY_TMPDIR": longest, "TMPDIR": temporary}
        with open(tmp_path / f"rank{rank}.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, *command], stdout=log, stderr=log, env={**os.environ, **node}, cwd=ROOT
            )

    yield launch
    left = gone(run_processes, 60)  # Ray's agents notice late that their node is gone
    shutil.rmtree(temporary, ignore_errors=True)
    assert left == []


def logs(folder: Path) -> str:
    return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-4000:]}" for path in folder.glob("rank*.log"))


def test_the_trainer_sees_both_nodes_and_its_exit_status_is_passed_on(start: Start, tmp_path: Path) -> None:
    driver = (
        "import json, ray; ray.init(log_to_driver=False)\n"
        "print(json.dumps([node['Resources'].get('GPU') for node in ray.nodes() if node['Alive']]))\n"
        "raise SystemExit(3)"
    )
    with start(1, "-c", LAUNCHER, "60") as worker, start(0, "-c", LAUNCHER, "60", driver, str(tmp_path)) as head:
        assert head.wait(90) == 3, logs(tmp_path)
        assert worker.wait(30) == 0, logs(tmp_path)
    assert json.dumps([1.0, 1.0]) in (tmp_path / "rank0.log").read_text().splitlines()
    assert "the head is gone" in (tmp_path / "rank1.log").read_text()


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.recipes)])
def test_a_head_that_is_killed_takes_everything_with_it(how: signal.Signals, start: Start, tmp_path: Path) -> None:
    driver = f"open({str(tmp_path / 'running')!r}, 'w'); import time; time.sleep(600)"
    with start(1, "-c", LAUNCHER, "60") as worker, start(0, "-c", LAUNCHER, "60", driver, str(tmp_path)) as head:
        deadline = time.monotonic() + 60
        while not (tmp_path / "running").exists():
            assert head.poll() is None, logs(tmp_path)
            assert time.monotonic() < deadline, logs(tmp_path)
            time.sleep(0.2)
        worker.send_signal(signal.SIGTERM)  # who ends a job tells all of its nodes
        time.sleep(1)
        assert worker.poll() is None
        head.send_signal(how)
        assert worker.wait(60) == 0, logs(tmp_path)
        assert head.wait(30) == (-how if how is signal.SIGKILL else 128 + how)
    assert "rank 1: SIGTERM: waiting for rank 0" in (tmp_path / "rank1.log").read_text()


def test_a_node_that_does_not_come_is_missed(start: Start, tmp_path: Path) -> None:
    with start(0, "-c", LAUNCHER, "8", "", str(tmp_path)) as head:
        assert head.wait(60) == 1
    log = (tmp_path / "rank0.log").read_text()
    assert "1 of 2 nodes did not join 127.0.0.1:" in log
    assert "Run the same command on every node" in log


@pytest.mark.engine
@pytest.mark.recipes
def test_two_steps_of_the_gsm8k_recipe_on_two_nodes(
    start: Start, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for split, problems in zip(("train", "test"), arithmetic.train_test(0, 8, 8), strict=True):
        rows = [arithmetic.to_row(problem, split, i, agent_name="noting") for i, problem in enumerate(problems)]
        for row in rows:
            row["extra_info"]["notes"] = str(notes)
        write_parquet(rows, tmp_path / f"{split}.parquet")
    (tmp_path / "tools.yaml").write_text(f"tools: [{{name: calculator}}, {{class_name: '{PARTS}:Where'}}]")
    settings: dict[str, Any] = {
        "data.train_files": f"{tmp_path}/train.parquet",
        "data.val_files": f"{tmp_path}/test.parquet",
        "actor_rollout_ref.model.path": tiny_model,
        "actor_rollout_ref.rollout.multi_turn.tool_config_path": f"{tmp_path}/tools.yaml",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,  # a rank's share of 4 prompts with 2 samples
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.rollout.agent.num_workers": 2,
        "reward.num_workers": 2,
        "reward.custom_reward_function.path": PARTS,
        "ray_kwargs.ray_init.num_cpus": 12,
        "ray_kwargs.ray_init.num_gpus": 1,  # one rank and one engine for each node
        "ray_kwargs.ray_init.object_store_memory": 200_000_000,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "agent_rl.run.folder": tmp_path,
    }
    command = [
        *("-m", "agent_rl.cli.main", "train", "recipes/gsm8k_calculator", "--script", "tests/e2e/nodes_train.py"),
        *(f"{key}={value}" for key, value in settings.items()),
    ]
    with start(1, *command) as worker, start(0, *command) as head:
        assert head.wait(400) == 0, logs(tmp_path)
        assert worker.wait(60) == 0, logs(tmp_path)

    metrics = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in metrics] == [1, 2]
    for line in metrics:
        assert line["data"]["training/rollout_probs_diff_mean"] < 1e-5
        assert line["data"]["agent/unscored"] == 0
    where: dict[str, set[str]] = {}
    for path in notes.iterdir():
        what, node = path.name.split("_")
        where.setdefault(what, set()).add(node)
    assert len(where["loop"]) == 2
    assert where == dict.fromkeys(("loop", "tool", "reward"), where["loop"])
