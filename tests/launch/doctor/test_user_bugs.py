"""A bug in a user's own files is a problem with file and line, and never "ready"."""

from pathlib import Path

import pytest

from agent_rl.launch.composition import compose
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.diagnosis import diagnose, run_checks
from agent_rl.preflight.check import Finding, Needs, Status
from tests.support.user_bugs import BUGS, Bug, write

pytestmark = pytest.mark.slow


def problems(folder: Path) -> list[Finding]:
    """Those that the doctor finds without verl, which it imports in another process for the rest."""
    if "YAML" in folder.name:
        findings = diagnose(str(folder))
    else:
        findings = run_checks(Case(config=compose(folder)), Needs.CONFIG)
    return [finding for finding in findings if finding.status in (Status.PROBLEM, Status.WARNING)]


def test_the_files_without_a_bug_have_no_problem(tmp_path: Path) -> None:
    crowded = ("host memory", "disk")  # what other programs of the machine may have taken
    assert [each for each in problems(write(tmp_path / "fine")) if each.subject not in crowded] == []


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_a_problem_with_its_line(tmp_path: Path, bug: Bug) -> None:
    folder = write(tmp_path / bug.name.replace(" ", "_"), bug)
    found = [each for each in problems(folder) if each.status is Status.PROBLEM]
    shown = [f"{each.text} {each.remedy}" for each in found]
    assert any(bug.place in text and bug.says in text for text in shown), shown
