"""What a run shows as a panel, as lines and as JSON, and that it outlives its display."""

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from agent_rl.launch import panel
from agent_rl.launch.display import Display, JsonDisplay
from agent_rl.launch.stopping import StoppedRun

STOPPED = StoppedRun(3, "/c/global_step_3", "agent-rl train x")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("shown", "environ", "is_panel"),
    [
        (None, {}, True),
        (None, {"TERM": "dumb"}, False),
        (None, {"NO_COLOR": "1"}, False),
        ("panel", {"NO_COLOR": "1"}, True),
        ("panel", {"TERM": "dumb"}, False),
        ("lines", {}, False),
        ("verl", {}, False),
    ],
)
def test_the_panel_is_shown_where_it_can_be(
    shown: str | None, environ: dict[str, str], is_panel: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", "FORCE_COLOR": "1", **environ}.items():
        monkeypatch.setenv(name, value)
    for stream, expected in ((Terminal(), is_panel), (io.StringIO(), False)):
        Display(shown, stream).begin(tmp_path, [], {})
        assert ("\u256d" in stream.getvalue()) == expected


def drive(display: Display, folder: Path) -> None:
    display.begin(folder, ["resumes from step 2"], {})
    display.line("noise \x1b[36mcolour\x1b[0m \x1b[2J")
    display.line("(TaskRunnerV1 pid=3) INFO: Total training steps: 20")
    display.line("(Worker pid=7) agent_rl: a note")
    display.step(1, {"critic/score/mean": 1.0, "x": math.nan})
    for _ in range(2):
        display.tick("SIGINT")
    display.end(STOPPED)
    display.close()


def test_lines_and_the_whole_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive(Display("lines"), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [f"run: {tmp_path}", "     resumes from step 2", f"log: {tmp_path}/train.log"]
    assert lines[4:] == [
        "a note",
        "step 1/20: reward +1.000",
        "SIGINT: the run ends after step 1; a second signal ends it now",
        "stopped after step 3, saved in /c/global_step_3",
        "resume with: agent-rl train x",
    ]
    drive(Display("verl"), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert "noise colour \u27e8U+001B\u27e9[2J" in lines
    assert lines.count("agent_rl: a note") == 1


def test_json_is_a_line_for_each_step_and_one_at_the_end(tmp_path: Path) -> None:
    display = JsonDisplay(stream := io.StringIO())
    drive(display, tmp_path)
    display.write_end("failed", 1)  # has ended already
    step, end = map(json.loads, stream.getvalue().splitlines())
    assert step == {"event": "step", "step": 1, "of": 20, "metrics": {"critic/score/mean": 1.0, "x": None}}
    assert end.pop("seconds") >= 0
    assert end == {
        "event": "end", "status": "stopped", "exit_code": 75, "step": 3, "folder": str(tmp_path),
        "log": f"{tmp_path}/train.log", "checkpoint": "/c/global_step_3", "command": "agent-rl train x",
    }  # fmt: skip
    JsonDisplay(stream := io.StringIO()).aborted("SIGTERM")
    assert json.loads(stream.getvalue())["exit_code"] == 143


def test_lines_follow_a_panel_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(panel, "_charts", lambda rows, width: 1 / 0)
    display = Display("panel", terminal := Terminal())
    display.begin(tmp_path, [], {})
    for step in (1, 2):
        display.step(step, {"critic/score/mean": step})
    assert capsys.readouterr().err.startswith("the panel failed, but the run continues: ZeroDivisionError")
    assert terminal.getvalue().endswith("step 1: reward +1.000\nstep 2: reward +2.000\n")
    assert list(display.progress.steps) == [1, 2]


def test_a_run_goes_on_when_nobody_reads_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        display = Display()
        for step in range(2000):
            display.step(step, {})
        print("read by nobody", flush=True)
    assert len(display.progress.steps) == 2000


def test_a_run_goes_on_when_a_line_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    written = io.BytesIO()
    display = Display(stream=io.TextIOWrapper(written, encoding="ascii"))
    values: list[Any] = ["\u4e2d", "x"]
    for source in values:
        display.step(1, {f"val-core/{source}/acc/mean@1": 1.0})
    assert "the display failed, but the run continues: UnicodeEncodeError" in capsys.readouterr().err
    assert written.getvalue() == b"step 1: validation on x: accuracy 100%\n"
