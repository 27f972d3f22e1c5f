import sys
from pathlib import Path
from typing import Any

import pytest

from agent_rl.launch.doctor.checks import tools
from agent_rl.preflight.check import Status
from agent_rl.sandbox.host.execution import IsolationReport
from tests.launch.doctor.conftest import ROOT, MakeCase, only

KEY = tools.KEY


def tool_file(folder: Path, entry: str) -> dict[str, Any]:
    path = folder / "tools.yaml"
    path.write_text(f"tools:\n  - {entry}\n")
    return {KEY: str(path)}


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("{name: search, config: {corpus: /no/such/corpus.jsonl}}", "/no/such/corpus.jsonl"),
        ("{name: search, config: {url: 'http://localhost:9/', api_key_env: NO_SUCH_KEY}}", "NO_SUCH_KEY is not set"),
        ("{name: search, config: {corpus: '${oc.env:NO_SUCH_CORPUS}'}}", "NO_SUCH_CORPUS"),
        ("{name: mcp, config: {command: [no-such-program]}}", "no-such-program"),
        ("{name: python, config: {packages: [no-such-package]}}", "no-such-package"),
    ],
)
def test_what_a_tool_lacks(make_case: MakeCase, tmp_path: Path, entry: str, text: str) -> None:
    finding = only(tools.tool_file(make_case(tool_file(tmp_path, entry))))
    assert finding.status is Status.PROBLEM
    assert text in f"{finding.text} {finding.remedy}"


def test_an_mcp_server_is_asked_for_its_tools(make_case: MakeCase, tmp_path: Path) -> None:
    server = ROOT / "tests/tools/builtin/mcp_server.py"
    keys = tool_file(tmp_path, f"{{name: mcp, config: {{command: [{sys.executable}, {server}]}}}}")
    finding = only(tools.tool_file(make_case(keys)))
    assert finding.status is Status.OK, finding


def test_the_sandbox_is_tried_where_a_tool_needs_it(make_case: MakeCase, tmp_path: Path) -> None:
    finding = only(tools.sandbox(make_case(tool_file(tmp_path, "{name: python}"))))
    assert finding.status is Status.OK, finding


@pytest.mark.parametrize(("config", "status"), [("{}", "problem"), ("{unsafe: true}", "warning")])
def test_a_machine_without_isolation(
    make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, status: str
) -> None:
    async def probe() -> IsolationReport:
        return IsolationReport(False, (), {"landlock": "use Linux 5.13"}, {})

    monkeypatch.setattr(tools, "_probe", probe)
    finding = only(tools.sandbox(make_case(tool_file(tmp_path, f"{{name: python, config: {config}}}"))))
    assert finding.status.value == status
    assert "use Linux 5.13" in finding.text + finding.remedy


def test_environments_are_loaded(make_case: MakeCase) -> None:
    file = ROOT / "recipes/lockers/lockers.py"
    finding = only(tools.environments(make_case({"agent_rl.environments": {"lockers": str(file)}})))
    assert finding.status is Status.OK
    finding = only(tools.environments(make_case({"agent_rl.environments": {"lockers": f"{file}:Locker"}})))
    assert (finding.status, finding.remedy[:12]) == (Status.PROBLEM, "Did you mean")


def test_an_environment_that_begins_differently_is_refused(make_case: MakeCase, tmp_path: Path) -> None:
    file = tmp_path / "lockers.py"
    text = (ROOT / "recipes/lockers/lockers.py").read_text()
    file.write_text(text.replace("self.is_open = number, code, False", "self.is_open = number, random.random(), False"))
    finding = only(tools.environments(make_case({"agent_rl.environments": {"lockers": str(file)}})))
    assert finding.status is Status.PROBLEM
    assert "two calls differ in self.code" in finding.text
    assert "Draw from self.random" in finding.remedy
