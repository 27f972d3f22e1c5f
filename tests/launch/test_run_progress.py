"""What is known of a run, from the lines that a trainer writes."""

import json
import time
from pathlib import Path

import pytest

from agent_rl.launch.run_progress import MOST_STEPS, RunProgress
from agent_rl.verl_adapter.stages import PREFIX

REWARD = {"critic/score/mean": 1.0}


def stage(what: str, step: int, seconds: float) -> str:
    return f"(TaskRunnerV1 pid=3) {PREFIX}{json.dumps({'what': what, 'step': step, 'time': time.time() + seconds})}"


def test_what_is_started_is_told_with_its_seconds_until_the_first_step(tmp_path: Path) -> None:
    progress = RunProgress()
    progress.begin(tmp_path, [], {})
    lines = [("Ray", 0, 2), ("engine", 0, 5), ("engine", 0, 6), ("validation", 7, 9), ("sampling", 8, 12)]
    told = [text for line in lines for text in progress.line(stage(*line))]
    assert told == ["started: libraries, 2.0 s", "started: Ray, 3.0 s", "started: engine, 4.0 s",
                    "started: validation, 3.0 s"]  # fmt: skip
    assert progress.is_training
    assert progress.line(stage("update", 8, 13)) == []
    assert (progress.stage.what, progress.step_number) == ("update", 8)


@pytest.mark.parametrize("text", ["{", '{"what": 1}', "[]", '{"what": "x", "step": "y", "time": 1}'])
def test_a_line_that_two_processes_have_written_is_left_out(text: str) -> None:
    assert RunProgress().line(PREFIX + text) == []


def test_messages_are_told_once_and_without_what_a_terminal_obeys() -> None:
    progress = RunProgress()
    lines = ("noise", "\x1b[36m(Worker pid=7)\x1b[0m agent_rl: a \x1b[2J", "(Worker pid=8) agent_rl: a \x1b[2J")
    assert [text for line in lines for text in progress.line(line)] == ["a \u27e8U+001B\u27e9[2J"]
    assert sum(len(progress.line(f"agent_rl: {number}")) for number in range(100)) == 19


def test_a_run_that_goes_on_has_the_steps_of_its_earlier_start(tmp_path: Path) -> None:
    rows = [{"step": step, "data": {**REWARD, "agent/first": step, "perf/mfu": 1.0}} for step in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    progress = RunProgress()
    progress.begin(tmp_path, [], {})
    progress.step(2, {"val-core/x/acc/mean@1": 0.5})  # the validation of the step it goes on from
    assert progress.steps[2] == {**REWARD, "agent/first": 2, "val-core/x/acc/mean@1": 0.5, "step": 2}
    progress.step(3, REWARD)
    assert [each["step"] for each in progress.training] == [1, 2, 3]
    assert "agent/first" in progress.steps[2]


def test_a_run_that_resumes_from_an_older_step_is_at_that_step_from_the_beginning(tmp_path: Path) -> None:
    rows = [{"step": step, "data": REWARD} for step in range(1, 51)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    progress = RunProgress()
    progress.begin(tmp_path, [], {})
    progress.line(stage("sampling", 41, 9))
    assert (progress.step_number, progress.training[-1]["step"]) == (41, 40)


def test_the_time_left_is_that_of_the_steps_so_far() -> None:
    now = [100.0]
    progress = RunProgress(lambda: now[0])
    assert progress.seconds_left is None
    progress.line("(TaskRunnerV1 pid=3) INFO:2026-11-22 13:39:00,182:Total training steps: 10")
    for step in range(1, 4):
        progress.step(step, {**REWARD, "timing_s/step": 9.0})
        assert progress.seconds_left == (10 - step) * 9
        now[0] += 4
    assert progress.seconds_left == 7 * 9 - 4


def test_a_long_run_keeps_its_newest_steps_and_validations_and_thins_out_older_steps() -> None:
    progress = RunProgress()
    last = 3 * MOST_STEPS
    for step in range(1, last + 1):
        validation = {"val-core/acc": 0.5} if step % 500 == 0 else {}
        progress.step(step, {"critic/score/mean": 1.0, "timing_s/step": 1.0, **validation})
    kept = list(progress.steps)
    assert len(kept) <= MOST_STEPS
    assert kept == sorted(kept)
    assert kept[-MOST_STEPS // 2 :] == list(range(last - MOST_STEPS // 2 + 1, last + 1))
    assert set(range(500, last + 1, 500)) <= set(kept)
    assert len([step for step in kept if step < 1000]) > 50
