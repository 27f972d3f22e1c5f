"""A run's progress, read from the files that it wrote."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent_rl.trajectory.run_files import RunState, read_metrics, this_process
from agent_rl.trajectory.viewer.report import read_run


def write(folder: Path, steps: int = 0, **about: Any) -> Path:
    """A run's folder with so many steps."""
    (folder / "run.json").write_text(json.dumps(about))
    lines = [json.dumps({"step": step, "data": {}}) for step in range(1, steps + 1)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    os.utime(folder / "metrics.jsonl", (1_000_000, 1_000_000))
    return folder


def test_a_run_without_an_end_is_running_while_its_process_lives(tmp_path: Path) -> None:
    program = "import time, json; from agent_rl.trajectory.run_files import this_process\n"
    program += "print(json.dumps(this_process()), flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        folder = write(tmp_path, 3, process=json.loads(child.stdout.readline()))
        assert read_state(folder).status == "running"
        child.kill()
    state = read_state(folder)
    assert (state.status, state.step, state.time[:10]) == ("killed", 3, "1970-01-12")
    assert str(state).startswith("killed after step 3, 1970-01-12 ")


def read_state(folder: Path) -> RunState:
    return read_run(str(folder)).state


def test_a_line_that_is_being_written_is_no_step_yet(tmp_path: Path) -> None:
    folder = write(tmp_path, 2)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "da')
    assert [metrics["step"] for metrics in read_metrics(folder)] == [1, 2]


@pytest.mark.parametrize("changed", [{"created": 1.0}, {"pid": 2**22 + 1}])
def test_another_process_of_the_same_number_is_not_the_run(changed: dict[str, Any], tmp_path: Path) -> None:
    folder = write(tmp_path, process={**this_process(), **changed})
    assert str(read_state(folder)).startswith("killed before the first step")


def test_the_end_that_was_written_counts(tmp_path: Path) -> None:
    end = {"status": "failed", "time": "2026-01-02T03:04:05+0000", "error": "out of memory"}
    state = read_state(write(tmp_path, 2, end=end, process=this_process()))
    assert (state.status, state.step, state.error) == ("failed", 2, "out of memory")


@pytest.mark.parametrize("about", [{}, {"process": {"host": "another", "pid": 1, "created": 1.0}}])
def test_what_cannot_be_known_here_is_said(about: dict[str, Any], tmp_path: Path) -> None:
    assert read_state(write(tmp_path, 1, **about)).status == "unknown"
