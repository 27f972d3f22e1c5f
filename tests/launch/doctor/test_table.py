import io

import pytest
from rich.console import Console

from agent_rl.launch.doctor.table import show, to_dict
from agent_rl.preflight.check import Finding, Status, skipped, warning

LONG = "actor_rollout_ref.rollout.multi_turn.max_tool_response_length=1024"
FINDINGS = [
    Finding("Python", Status.OK, "3.11.7", group="installation"),
    Finding("tool results", Status.WARNING, "cut [at] 256 characters", f"Set {LONG}", "tools"),
    Finding("a subject of many words indeed", Status.PROBLEM, "x " * 80, "y " * 80, "tools"),
    Finding("chat template", Status.SKIPPED, "not here", group="chat template"),
]


def rendered(width: int, findings: list[Finding] = FINDINGS) -> str:
    file = io.StringIO()
    show(findings, Console(file=file, width=width))
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_nothing_is_lost_at_any_width(width: int) -> None:
    text = rendered(width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert all(finding.status.value in text and finding.group in text for finding in FINDINGS)
    assert LONG in "".join(text.split())
    assert min(text.count(letter) for letter in "xy") >= 80
    assert "[at]" in text


def test_the_last_line_sums_up() -> None:
    assert rendered(80).splitlines()[-1] == "1 problem, 1 warning, 1 ok, 1 skipped: not ready."
    fine = [Finding("", Status.OK, "b"), warning("b", "c"), warning("b", "c"), skipped("b")]
    last = rendered(80, findings=fine).splitlines()[-1]
    assert last == "0 problems, 2 warnings, 1 ok, 1 skipped: ready."


def test_only_what_needs_a_change_is_shown_problems_first() -> None:
    file = io.StringIO()
    show(FINDINGS, Console(file=file, width=80), every=False)
    text = file.getvalue()
    assert text.index("problem ") < text.index("warning ")
    assert "Python" not in text
    assert text.splitlines()[-2:] == ["1 problem, 1 warning, 1 ok, 1 skipped: not ready.", "--all shows every finding"]


def test_json_has_every_finding_with_status_and_remedy() -> None:
    answer = to_dict(FINDINGS)
    assert answer["ok"] is False
    assert answer["findings"][1]["remedy"] == f"Set {LONG}"
    assert [finding["status"] for finding in answer["findings"]] == ["ok", "warning", "problem", "skipped"]
