"""The panel, drawn into a terminal of a given size."""

import io
import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from agent_rl.launch import panel as panels
from agent_rl.launch.display import Display
from agent_rl.launch.panel import RunPanel, last_trajectory, sparkline
from agent_rl.launch.run_progress import RunProgress
from agent_rl.trajectory import Message, Score, StopReason, ToolCall, ToolResult, Trajectory, Turn
from agent_rl.trajectory.trace import append
from agent_rl.verl_adapter.stages import PREFIX
from tests.launch.test_display import Terminal

HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\r\n\t\u202e\ud800[bold]markup[/bold] \U0001f600 \u4e2d\u6587 " * 20


def panel(folder: Path, width: int = 100, height: int = 40) -> RunPanel:
    """A panel over a text, as of a run that has begun."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, highlight=False)
    shown = RunPanel(RunProgress(), console)
    section = {"trace": {"path": str(folder / "trace.jsonl")}, "reward": {"components": {"style": {}}}}
    shown.progress.begin(folder, [], {"agent_rl": section})
    return shown


def drawn(shown: RunPanel) -> list[str]:
    """The lines of the panel as it is now, without styles."""
    console = Console(file=io.StringIO(), width=shown.console.width, height=shown.console.height)
    console.print(shown)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(cell_len(line) <= console.width for line in lines)
    assert len(lines) < console.height
    return [line.strip("\u2502 ") for line in lines]


def stage(what: str, step: int) -> str:
    return PREFIX + json.dumps({"what": what, "step": step, "time": time.time()})


def metrics(step: int) -> dict[str, Any]:
    return {
        "critic/score/mean": step / 1000, "agent/correctness": step / 900, "agent/style": 0.5, "agent/format": 0.0,
        "agent/acc": 0.25, "agent/tool_calls": 1.5, "agent/tool_errors": 0.1, "agent/malformed_rate": 0.04,
        "agent/unscored": 2, "perf/total_num_tokens": 5000, "timing_s/step": 2.0,
        "val-core/math/acc/mean@1": step / 2000,
    }  # fmt: skip


def trajectory(text: str, step: int) -> Trajectory:
    turn = Turn(
        text, calls=[ToolCall("calculator", {"expression": text})], results=[ToolResult("", "calculator", text)]
    )
    prompt = [Message("system", "be good"), Message("user", text)]
    return Trajectory(prompt, StopReason.ANSWERED, [turn], answer=text, score=Score(0.5), info={"step": step})


def test_what_is_started_is_shown_until_the_first_step(tmp_path: Path) -> None:
    shown = panel(tmp_path)
    for what in ("Ray", "engine"):
        shown.progress.line(stage(what, 0))
    lines = drawn(shown)
    assert lines[1] == "starting: engine, 0:00:00"
    assert [line.split()[0] for line in lines[3:5]] == ["libraries", "Ray"]
    assert "Ctrl-C ends the run now; nothing has been trained yet" in lines
    shown.progress.line(stage("sampling", 1))
    assert drawn(shown)[1].startswith("step 1: sampling")


def test_a_thousand_steps_in_a_terminal_of_any_size(tmp_path: Path) -> None:
    append(tmp_path / "trace.jsonl", trajectory("three", 1000))
    shown = panel(tmp_path)
    shown.progress.line("INFO: Total training steps: 1200")
    for step in range(1, 1001):
        shown.progress.step(step, metrics(step))
    shown.step(1000)
    shown.progress.line(stage("update", 1001))
    lines = drawn(shown)
    text = "\n".join(lines)
    assert lines[1].startswith("step 1001 of 1200: update, 0:0")
    assert lines[3].startswith("reward            +0.001 \u2192 +1.000")
    assert lines[3].split()[-1] == "".join(panels.BARS[round(number * 7 / 59)] for number in range(60))
    assert [line.split()[0] for line in lines[4:6]] == ["correctness", "style"]  # `format` is 0 throughout
    for words in (
        "25% \u2192 25%",
        "2,500 \u2192 2,500",
        "4% of turns malformed, 2 trajectories unscored",
        "validation math: 0.00 (step 1), 0.50 (step 998)",
        "example from step 1000: reward +0.50, 1 turn, 1 call",
        'did   calculator({"expression": "three"}) = three',
        "! The style component is 0.5 in all 1000 steps",
    ):
        assert words in text
    assert "agent-rl view" in text  # its path is wrapped where it is long
    for width, height in ((60, 24), (60, 40), (30, 12), (200, 80), (100, 4)):
        shown.console.size = (width, height)  # type: ignore[assignment]
        assert drawn(shown)[1].startswith("step 1001 of 1200: u")


def test_nothing_of_a_model_a_tool_or_a_data_set_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "trace.jsonl", trajectory(HOSTILE.replace("\ud800", ""), 1))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "40")
    display = Display("panel", terminal := Terminal())
    display.note(HOSTILE)
    display.begin(tmp_path, [HOSTILE], {"agent_rl": {"trace": {"path": str(tmp_path / "trace.jsonl")}}})
    display.line(f"agent_rl: {HOSTILE}")
    display.line(stage(HOSTILE, 1))
    display.step(1, {**metrics(1), f"val-core/{HOSTILE[:30]}/acc/mean@1": 1.0})
    display.tick(HOSTILE)
    written = terminal.getvalue()
    assert "example from step 1" in written
    display.close()
    assert "failed: step 1" in terminal.getvalue()
    for obeyed in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e", "\ud800"):
        assert obeyed not in written
    assert "[bold]" in written


def test_a_chart_is_as_wide_as_it_may_be() -> None:
    assert sparkline([], 10) == ""
    assert sparkline([1.0], 10) == sparkline([0.0], 10) == "\u2581"
    assert sparkline([0, 7], 10) == "\u2581\u2588"
    assert sparkline(list(range(80)), 8) == panels.BARS
    assert len(sparkline([math.sin(x) for x in range(1000)], 60)) == 60


def test_an_example_is_drawn_from_all_trajectories_of_the_step(tmp_path: Path) -> None:
    """Whatever their order: the last ones of a step are its longest."""
    path, longest = tmp_path / "trace.jsonl", 0
    assert last_trajectory(path, 1) is None
    for step in range(1, 41):
        for number in range(8):
            append(path, trajectory(f"{'long' * (number > 3)} {number} of step {step}", step))
        found = last_trajectory(path, step)
        assert found is not None
        assert found.info["step"] == step
        longest += (found.answer or "").startswith("long")
    assert 8 <= longest <= 32
    with open(path, "ab") as file:
        file.write(b'{"torn')
    assert last_trajectory(path, 40)
    assert last_trajectory(path, 41) is None


@pytest.mark.parametrize("status", ["trained", "stopped", "failed"])
def test_the_last_frame_says_how_the_run_ended_and_asks_for_nothing(tmp_path: Path, status: str) -> None:
    shown = panel(tmp_path)
    shown.progress.configuration |= {"algorithm": {"adv_estimator": "grpo"}}
    shown.progress.line("INFO: Total training steps: 2")
    shown.progress.line(stage("sampling", 1))
    for step in (1, 2):
        shown.progress.step(step, {**metrics(step), "agent/acc": 3.0 * step})
        shown.step(step)
    shown.stop(status)
    lines = drawn(shown)
    assert lines[1].startswith(f"{status}: step 2 of 2  ")
    assert lines[2].startswith("grpo, 0:00:0")
    assert not lines[2].endswith("so far")
    assert not any("Ctrl-C" in line or " left" in line for line in lines)
    assert any(line.startswith("success") and "3 \u2192 6" in line for line in lines)  # no share


def test_it_is_drawn_once_a_second_and_at_once_when_it_is_asked_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, now = panel(tmp_path), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    shown.start()
    sizes = []
    for draw in (shown.tick, shown.tick, lambda: shown.request("SIGINT: ends after step 1")):
        draw()
        sizes.append(shown.console.file.tell())
    assert sizes[0] == sizes[1] < sizes[2]
    assert "SIGINT: ends after step 1" in "\n".join(drawn(shown))


def test_a_terminal_that_changes_its_size_is_cleared_and_the_last_frame_stays(tmp_path: Path) -> None:
    shown = panel(tmp_path)
    file: Any = shown.console.file
    shown.start()
    assert "\x1b[2J" not in file.getvalue()
    begun = file.tell()
    shown.console.size = (60, 30)  # type: ignore[assignment]
    shown.request("ends")
    written = file.getvalue()[begun:]
    assert "\x1b[2J" in written
    top = re.sub(r"\x1b\[[0-9;]*m", "", written).rpartition("\u256d")[2].splitlines()[0]
    assert top == f"\u2500 {tmp_path.name} ".ljust(58, "\u2500") + "\u256e"
    shown.stop("trained")
    assert "\u2570" in file.getvalue().splitlines()[-1]
