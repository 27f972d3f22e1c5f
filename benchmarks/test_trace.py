"""What the trace costs: processor time of writing, as a share of a training step's on this CPU.

A run of 128 trajectories a step writes its trace, and the processor time of all its processes is read at every step.
Then the run's records are written again, one step after the other, and the processor time of this process is taken:
that of the event loop, the thread and the packing. Torch and the engine are a toy here; with a model that is worth
training, a step is a hundred times as long.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from agent_rl.trajectory import Trajectory, trace
from benchmarks.test_step import SAMPLES, model, step_command, write_rows
from tests.e2e.conftest import marked_run
from tests.e2e.training import run_alone

__all__ = ["model"]

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

STEPS, SKIPPED, TRAJECTORIES, ROUNDS = 6, 1, 128, 7
MOST = 0.01
"""Of a step."""


def written(folder: Path, trajectories: list[Trajectory], batches: list[trace.TrainedBatch]) -> float:
    """Processor seconds of writing a step."""
    writer = trace.TraceWriter(folder / "trace.jsonl", part_bytes=1 << 30)

    async def write() -> None:
        for each in trajectories:
            tokens = each.info["tokens"]
            writer.tokens(each.id, tokens)
            each.info = {name: value for name, value in each.info.items() if name != "tokens"}
            await writer.trajectory(each)
            each.info["tokens"] = tokens

    before = time.process_time()
    asyncio.run(write())
    for batch in batches:
        writer.batch(lambda batch=batch: batch)  # type: ignore[misc]
    spent = time.process_time() - before
    assert writer.lost == 0
    return spent


def test_a_trace_costs_a_hundredth_of_a_step(tmp_path: Path, model: Path) -> None:
    write_rows(tmp_path, TRAJECTORIES // SAMPLES, STEPS, 0.0)
    command = step_command(tmp_path, model, TRAJECTORIES // SAMPLES, STEPS)
    used: list[float] = []
    with marked_run() as find:

        def note(step: int, metrics: dict[str, Any]) -> None:
            times = [process.cpu_times() for process in find()]
            used.append(sum(each.user + each.system for each in times))

        run_alone(command, tmp_path, on_metrics=note, timeout_s=800)
    seconds = median(after - before for before, after in pairwise(used[SKIPPED:]))

    path, steps = tmp_path / "trace.jsonl", defaultdict[int, list[Trajectory]](list)
    for each in trace.read(path, tokens=True):
        if each.info["split"] == "train":
            steps[each.info["step"]].append(each)
    batches = list(trace.read_batches(path))
    assert [len(its) for its in steps.values()] == [TRAJECTORIES] * STEPS
    assert [len(batch.names) for batch in batches] == [TRAJECTORIES] * STEPS
    spent = median(
        written(tmp_path / f"{turn}_{step}", its, [batch for batch in batches if batch.step == step])
        for turn in range(ROUNDS)
        for step, its in steps.items()
    )
    tokens = median(
        len(sequence["prompt_ids"]) + len(sequence["response_ids"])
        for its in steps.values()
        for each in its
        for sequence in each.info["tokens"]["sequences"]
    )
    size = {
        file.name: file.stat().st_size / len(steps) / TRAJECTORIES for file in sorted(tmp_path.glob("trace*.jsonl"))
    }
    print(f"\nstep {seconds:.2f} s of CPU, {TRAJECTORIES} trajectories of {tokens:.0f} tokens")
    print(f"writing {1e3 * spent:.1f} ms, {1e3 * spent / TRAJECTORIES:.2f} ms a trajectory, {spent / seconds:.2%}")
    print("bytes a trajectory:", ", ".join(f"{name} {value:.0f}" for name, value in size.items()))
    assert spent <= MOST * seconds
