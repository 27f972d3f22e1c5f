import sys
from importlib import metadata

import pytest

from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks import installation
from agent_rl.preflight.check import Status
from tests.launch.doctor.conftest import only

CPU = {"VERL_PLATFORM": "cpu"}


def test_agent_rl_on_the_path_alone_is_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: metadata.EntryPoints())
    finding = only(installation.plugin(Case(environ=CPU)))
    assert finding.status is Status.PROBLEM
    assert "not installed" in finding.text


@pytest.mark.trainer
def test_the_plugin_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(installation.registration(Case(environ=CPU))).status is Status.OK
    monkeypatch.delitem(sys.modules, "agent_rl.verl_adapter.plugin")
    assert only(installation.registration(Case(environ=CPU))).status is Status.PROBLEM
