"""Client CPU of an evaluation through an endpoint that answers at once, against verifiers' ToolEnv.

Both ask the same server, make three tool calls in every episode and run 64 at a time; ours keeps every trajectory as it
ends, verifiers keeps nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from agent_rl.cli.eval import run_missing
from agent_rl.data import make_row, write_parquet
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.runner import Evaluation
from agent_rl.evaluation.settings import read_settings

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[2]
VERIFIERS = Path(os.environ.get("VERIFIERS_DIR", f"{sys.prefix}/verifiers"))
"""Where `make bench` puts verifiers, with what it needs."""
EPISODES, AT_ONCE, CALLS, ROUNDS = 512, 64, 3, 3
MOST_OF_VERIFIERS = 1 / 3


@pytest.fixture
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.openai_server", str(CALLS), "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()


def ours(server: str, folder: Path) -> tuple[float, float]:
    """CPU and wall seconds."""
    flags = {"data": str(folder.parent / "rows.parquet"), "tools": str(ROOT / "tool_configs/calculator.yaml")}
    flags |= {"model": "scripted", "endpoint": server}
    settings = read_settings(flags, ["seed=0", f"concurrency={AT_ONCE}"])
    evaluation = Evaluation.load(settings)
    with Ledger(folder, settings) as ledger:
        cpu, wall = time.process_time(), time.perf_counter()
        asyncio.run(run_missing(evaluation, ledger))
        found = time.process_time() - cpu, time.perf_counter() - wall
        assert len(ledger.read()) == EPISODES
        assert all(record.metrics["tool_calls"] == CALLS for record in ledger.read().values())
    return found


def theirs(server: str, folder: Path) -> tuple[float, float]:
    arguments = {"url": server, "rows": EPISODES, "concurrency": AT_ONCE, "folder": str(folder)}
    command = [str(VERIFIERS / "bin/python"), str(Path(__file__).with_name("verifiers_eval.py")), json.dumps(arguments)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["rollouts"], found["calls"]) == (EPISODES, CALLS)
    return found["cpu_s"], found["wall_s"]


def test_client_cpu_of_an_evaluation(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not VERIFIERS.is_dir():
        pytest.skip("verifiers is not installed: make bench does it")
    rows = [
        make_row(question=f"What is {a}+{b}?", data_source="gsm8k_s", ground_truth=a + b, split="test", index=n)
        for n, (a, b) in enumerate((10 + 7 * n, 100 + 13 * n) for n in range(EPISODES))
    ]
    write_parquet(rows, tmp_path / "rows.parquet")
    pairs = [(ours(server, tmp_path / f"out{n}"), theirs(server, tmp_path / "cache")) for n in range(ROUNDS)]
    cpu, their_cpu = (median(pair[side][0] for pair in pairs) / EPISODES for side in (0, 1))
    rate, their_rate = (EPISODES / median(pair[side][1] for pair in pairs) for side in (0, 1))
    with capsys.disabled():
        print(f"\n{EPISODES} episodes, {AT_ONCE} at a time, {CALLS} tool calls each: {cpu / their_cpu:.2f} of the CPU")
        print(f"agent_rl   {1e3 * cpu:6.2f} ms of client CPU an episode, {rate:6.0f} episodes/s")
        print(f"verifiers  {1e3 * their_cpu:6.2f} ms of client CPU an episode, {their_rate:6.0f} episodes/s")
    assert cpu <= MOST_OF_VERIFIERS * their_cpu
