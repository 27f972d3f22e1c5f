import sys
from importlib import metadata
from pathlib import Path

import pytest

from agent_rl.doctor.case import Case
from agent_rl.doctor.checks import installation
from agent_rl.doctor.machine import Machine
from agent_rl.preflight.check import Status
from tests.doctor.conftest import MakeCase, node_facts, only, statuses, with_gpus

CPU = {"VERL_PLATFORM": "cpu"}


def installed(folder: Path, name: str, version: str, entry_points: str = "") -> None:
    """A package's metadata, as pip leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)


def test_this_environment_is_healthy() -> None:
    case = Case(environ=CPU)
    for check in (installation.python, installation.packages, installation.plugin, installation.engine):
        assert only(check(case)).status is Status.OK, check


@pytest.mark.parametrize(
    ("name", "version", "wanted"), [("transformers", "5.6.0", "!=5.6.0"), ("tensordict", "0.9.0", "!=0.9.0")]
)
def test_a_version_that_verl_refuses_is_named_with_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, version: str, wanted: str
) -> None:
    installed(tmp_path, name, version)
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = only(installation.packages(Case(environ=CPU)))
    assert (finding.subject, finding.status) == (name, Status.PROBLEM)
    assert version in finding.text
    assert wanted in finding.text
    assert f"pip install '{name}" in finding.remedy


def test_another_verl_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "verl", "0.8.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {finding.subject: finding for finding in installation.packages(Case(environ=CPU))}
    assert "0.8.0 is installed, agent_rl extends 0.9.1" in found["verl"].text


def test_on_a_gpu_the_engines_own_pins_count(make_case: MakeCase, tmp_path: Path) -> None:
    case = make_case(on_cpu=False, environ=with_gpus(tmp_path, 8))
    finding = only(installation.engine(case))
    assert finding.status is Status.WARNING
    assert "sglang==0.5.13 (0.5.12)" in finding.text
    assert "pip install 'agent-rl[sglang]'" in finding.remedy
    assert only(installation.packages(case)).status is Status.OK


def test_agent_rl_on_the_path_alone_is_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "entry_points", lambda group: metadata.EntryPoints())
    finding = only(installation.plugin(Case(environ=CPU)))
    assert finding.status is Status.PROBLEM
    assert "not installed" in finding.text


def test_two_packages_that_declare_the_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "agent-rl-fork", "1", "[verl.plugins]\nfork = agent_rl.verl_adapter.plugin\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = only(installation.plugin(Case(environ=CPU)))
    assert finding.status is Status.WARNING
    assert "2 installed packages" in finding.text


@pytest.mark.parametrize(("policy", "status"), [("none", "problem"), ("other", "problem"), ("x, agent_rl", "ok")])
def test_verl_can_be_told_not_to_load_plugins(policy: str, status: str) -> None:
    assert only(installation.plugin(Case(environ={**CPU, "VERL_USE_EXTERNAL_PLUGINS": policy}))).status.value == status


def test_an_engine_that_is_not_installed_is_a_problem(make_case: MakeCase) -> None:
    assert only(installation.engine(make_case())).status is Status.OK
    without = Machine({}, {**node_facts(), "packages": {}})
    assert "agent-rl[sglang]" in only(installation.engine(Case(environ={}, given=without))).remedy


@pytest.mark.trainer
def test_the_plugin_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(installation.registration(Case(environ=CPU))).status is Status.OK
    monkeypatch.delitem(sys.modules, "agent_rl.verl_adapter.plugin")
    assert statuses(installation.registration(Case(environ=CPU))) == {"registration": Status.PROBLEM}
