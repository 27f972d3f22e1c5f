"""What the trace costs: processor time of writing, as a share of a training step on this CPU.

A run of 128 trajectories a step writes its trace. Then its records are written again, one step after the other, and the
processor time of this process is taken (that of the event loop, the thread and the packing). It is compared with the
wall-clock seconds of the steps, in which both cores worked: the share of their processor time is smaller. Torch and the
engine are a toy here; with a model that is worth training, a step is a hundred times as long.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from agent_rl import trace
from agent_rl.launch.process import run_trainer
from agent_rl.trajectory import Trajectory
from tests.benchmarks.test_step import SAMPLES, model, step_command, write_rows

__all__ = ["model"]

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

STEPS, SKIPPED, TRAJECTORIES, ROUNDS = 6, 2, 128, 7
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
    logged: list[dict[str, Any]] = []
    command = step_command(tmp_path, model, TRAJECTORIES // SAMPLES, STEPS)
    run_trainer(command, tmp_path, on_metrics=lambda _, metrics: logged.append(metrics), timeout_s=800)
    seconds = median(metrics["timing_s/step"] for metrics in logged[SKIPPED:])

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
    print(f"\nstep {seconds:.2f} s, {TRAJECTORIES} trajectories of {tokens:.0f} tokens; {1e3 * spent:.1f} ms of CPU,")
    print(f"{1e3 * spent / TRAJECTORIES:.2f} ms a trajectory, {spent / seconds:.2%} of the step")
    print("bytes a trajectory:", ", ".join(f"{name} {value:.0f}" for name, value in size.items()))
    assert spent <= MOST * seconds
