"""A run as one page: what it shows of metrics and trajectories, and that it needs and runs nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agent_rl.cli.report import app
from agent_rl.errors import ConfigError
from agent_rl.viewer.report import read_run, report


def with_metrics(folder: Path, steps: int = 2, **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    lines = []
    for step in range(1, steps + 1):
        data = {
            "critic/score/mean": step / 10,
            "agent/acc": step / 20,
            "agent/correctness": step / 20,
            "agent/tool_calls": 1.0,
        }
        data |= {"val-core/gsm8k/acc/mean@1": 0.25, "agent/stop_answered": 1.0, "timing_s/step": 3.0}
        lines.append(json.dumps({"step": step, "data": data | more}))
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    return folder


def shown(*folders: Path) -> str:
    return report([read_run(str(folder)) for folder in folders], folders[0].parent / "cache")


def test_a_run_is_shown_with_its_curves_and_trajectories(run: Path) -> None:
    about = {
        "command": ["agent-rl", "train", "mine"],
        "configuration": {"data": {"seed": 7}},
        "versions": {"verl": "0.9.1"},
    }
    (run / "run.json").write_text(json.dumps(about))
    page = shown(with_metrics(run))
    for text in (
        "agent-rl train mine", "verl 0.9.1", "&#34;seed&#34;: 7", "2 steps", "<td>agent/acc</td>",
        "Success in step 1: 0.500", "over 3 prompts", "<td>gsm8k/acc/mean@1", "Best trajectories of the last step",
        "What is number 102?",
        "Prompts that changed most", "correctness: 0.1",
    ):  # fmt: skip
        assert text in page, text
    assert page.count("<figure>") == 6


def test_without_a_trace_or_run_json_the_metrics_are_shown(tmp_path: Path) -> None:
    page = shown(with_metrics(tmp_path / "bare"))
    assert "bare</h1>" in page
    assert "trajectories of the last step" not in page


def test_several_runs_are_compared(tmp_path: Path) -> None:
    page = shown(with_metrics(tmp_path / "one"), with_metrics(tmp_path / "two", 3))
    assert "2 runs" in page
    reward = page[page.index("<figcaption>Reward") :]
    assert re.search(r"one: 0\.2<.*two: 0\.3<", reward[: reward.index("</figure>")])


def test_the_page_needs_and_runs_nothing(run: Path) -> None:
    hostile = "</style><script>alert(1)</script><img src=//evil onerror=alert(1)>"
    (run / "run.json").write_text(
        json.dumps({"command": [hostile], "configuration": {hostile: hostile}, "versions": {hostile: hostile}})
    )
    page = shown(with_metrics(run, **{f"val-core/{hostile}/acc/mean@1": 0.5, f"agent/stop_{hostile}": 1.0}))
    assert "<script" not in page
    assert "<img" not in page
    assert not re.search(r"\s(src|href|on\w+)=(?!&)", re.sub(r"&lt;.*?&gt;", "", page))
    assert "default-src 'none'" in page


def test_the_command_writes_it_and_refuses_a_folder_without_metrics(
    run: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = CliRunner().invoke(app, [str(with_metrics(run))], catch_exceptions=False)
    assert (found.exit_code, found.stdout.strip()) == (0, str(run / "report.html"))
    assert "<svg" in (run / "report.html").read_text()
    with pytest.raises(ConfigError, match=r"no metrics can be read there.*metrics\.jsonl"):
        CliRunner().invoke(app, [str(tmp_path)], catch_exceptions=False)
