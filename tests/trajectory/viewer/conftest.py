"""Trajectories of two steps of a run, in a file, and an index of it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_rl.trajectory import Message, Score, StopReason, ToolCall, ToolResult, ToolStatus, Trajectory, Turn, trace
from agent_rl.trajectory.viewer.index import TraceIndex
from agent_rl.trajectory.viewer.records import find_sources

Made = Callable[..., TraceIndex]


def trajectory(number: int, sample: int, step: int = 1, text: str = "", **more: Any) -> Trajectory:
    """A sample of a prompt, right if `sample` is even, with one call that fails if `number` is odd."""
    status = ToolStatus.ERROR if number % 2 else ToolStatus.OK
    calls, results = (
        [ToolCall("calculator", {"expression": "6*7"}, "1")],
        [ToolResult("1", "calculator", "42", status, 0.5)],
    )
    right = float(sample % 2 == 0)
    fields: dict[str, Any] = {
        "stop_reason": StopReason.ANSWERED,
        "turns": [Turn(f"I calculate. {text}", 12, calls, results, observation="42"), Turn(f"It is {sample}.", 5)],
        "id": f"uid{step}-{number}_{sample}",
        "agent": "react_agent",
        "data_source": "gsm8k" if number % 2 else "math",
        "ground_truth": "42",
        "answer": str(sample),
        "score": Score(right - step / 10, {"correctness": right, "efficiency": -0.1 * step}),
        "info": {"step": step, "split": "train", "index": number},
    }
    fields["prompt"] = [Message("user", f"What is number {number + 100}?")]
    return Trajectory(**{**fields, **more})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with 2 steps of 3 prompts of 4 samples, and one trajectory that failed."""
    folder = tmp_path / "my_run"
    folder.mkdir()
    for step in (1, 2):
        for prompt in range(3):
            for sample in range(4):
                trace.append(folder / "trace.jsonl", trajectory(prompt, sample, step))
    failed = trajectory(7, 0, 2, score=None, error="the engine failed", stop_reason=StopReason.ENGINE_ERROR, turns=[])
    trace.append(folder / "trace.jsonl", failed)
    return folder


@pytest.fixture
def index(tmp_path: Path, run: Path) -> Iterator[TraceIndex]:
    """An index of the run, up to date."""
    made = TraceIndex(find_sources([str(run)]), tmp_path / "cache")
    made.refresh()
    yield made
    made.close()
