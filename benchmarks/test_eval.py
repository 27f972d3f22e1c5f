"""Client CPU of an evaluation through an endpoint that answers at once, against verifiers 0.4.

Both ask the same server, make three tool calls in every episode and keep every trajectory as it ends. Ours runs agents
and tools in the process of the evaluation, 64 episodes at a time. verifiers runs each rollout's agent as a program of
its own behind a proxy, which lets any program be the agent, and the tools as a server; here 4 rollouts at a time.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from agent_rl.cli.eval import run_missing
from agent_rl.data import arithmetic, make_row, write_parquet
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.runner import Evaluation
from agent_rl.evaluation.settings import read_settings
from benchmarks.peers import VERIFIERS, agreement, run_in_verifiers

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[1]
EPISODES, AT_ONCE, CALLS, ROUNDS = 512, 64, 3, 3
THEIR_EPISODES, THEIRS_AT_ONCE = 16, 4
GREEDY = 64
MOST_OF_VERIFIERS = 1 / 3


@pytest.fixture
def server() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.openai_server", str(CALLS), "0"]
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


def theirs(server: str, folder: Path) -> tuple[float, float, float]:
    """CPU seconds of verifiers' process and of those that it starts, and wall seconds, of an episode."""
    arguments = {"url": server, "rows": THEIR_EPISODES, "concurrency": THEIRS_AT_ONCE, "folder": folder}
    found = run_in_verifiers("verifiers_eval.py", arguments)
    assert (found["rollouts"], found["calls"]) == (THEIR_EPISODES, CALLS)
    own, started, wall = (found[name] / THEIR_EPISODES for name in ("own_cpu_s", "started_cpu_s", "wall_s"))
    return own, started, wall


def test_episodes_of_a_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """verifiers and `agent-rl eval` play the quickstart's greedy episodes alike, and score them alike."""
    if not VERIFIERS.is_dir():
        pytest.skip("verifiers is not installed: make bench does it")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    problems, _ = arithmetic.train_test(0, GREEDY, 1)
    write_parquet([arithmetic.to_row(each, "test", at) for at, each in enumerate(problems)], tmp_path / "rows.parquet")
    recipe = ROOT / "recipes/quickstart"
    found = agreement(recipe, [], recipe / "model", tmp_path / "rows.parquet", tmp_path / "episodes")
    with capsys.disabled():
        print(f"\n{found['episodes']} episodes: {found['same_text']} with the same text")
    assert found == dict.fromkeys(("episodes", "same_text", "same_result"), GREEDY)


def test_client_cpu_of_an_evaluation(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not VERIFIERS.is_dir():
        pytest.skip("verifiers is not installed: make bench does it")
    rows = [
        make_row(question=f"What is {a}+{b}?", data_source="gsm8k_s", ground_truth=a + b, split="test", index=n)
        for n, (a, b) in enumerate((10 + 7 * n, 100 + 13 * n) for n in range(EPISODES))
    ]
    write_parquet(rows, tmp_path / "rows.parquet")
    rounds = [ours(server, tmp_path / f"out{n}") for n in range(ROUNDS)]
    cpu, wall = (median(figures) / EPISODES for figures in zip(*rounds, strict=True))
    own, started, their_wall = theirs(server, tmp_path / "theirs")
    with capsys.disabled():
        print(
            f"\n{CALLS} tool calls in each episode: {cpu / own:.2f} of the CPU of its process, "
            f"{cpu / (own + started):.4f} of that with its programs"
        )
        print(
            f"agent_rl   {1e3 * cpu:7.2f} ms of client CPU per episode, {1 / wall:7.1f} episodes/s, {AT_ONCE} at a time"
        )
        print(
            f"verifiers  {1e3 * own:7.2f} ms in its process, {1e3 * started:.0f} ms in the programs that it starts,",
            end="",
        )
        print(f" {1 / their_wall:.2f} episodes/s, {THEIRS_AT_ONCE} at a time")
    assert cpu <= MOST_OF_VERIFIERS * own
