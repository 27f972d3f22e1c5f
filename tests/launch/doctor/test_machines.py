"""The doctor about recorded machines: it names what would stop the run there, and nothing where the run would start."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks import ray
from agent_rl.launch.doctor.diagnosis import all_checks, run_check
from agent_rl.launch.doctor.machine import Machine
from agent_rl.preflight.check import Finding, Needs, Status
from tests.launch.doctor.conftest import MakeCase, node_facts, program

MACHINES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("machines.yaml").read_text())
GROUPS = ("installation", "machine", "Ray")


def of_a_file(facts: dict[str, Any], file: Path) -> Machine:
    gpus, gib = facts.pop("gpus", 8), facts.pop("memory_gib", None)
    whole = {**node_facts(gpus), **facts, **({"memory": gib << 30} if gib else {})}
    file.write_text(json.dumps(whole))
    return Machine.from_file(file)


def said(case: Case) -> list[Finding]:
    checks = [each for each in all_checks() if each.group in GROUPS and each.needs is not Needs.VERL]
    checks += [
        each
        for each in all_checks()
        if (each.group, each.function.__name__) == ("configuration", "model") and case.config
    ]
    return [finding for each in checks for finding in run_check(each, case) if finding.status is not Status.OK]


@pytest.mark.parametrize("name", MACHINES)
def test_what_stops_a_run_is_named_and_nothing_else(
    name: str, make_case: MakeCase, three_b: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = MACHINES[name]
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))  # this machine's models are not that machine's
    # nor is a Ray that runs here
    monkeypatch.setattr(ray, "ray_folder", lambda environ: str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.1:1")
    keys = {"actor_rollout_ref.model.path": three_b, **described.get("run", {})}
    case, machine = make_case(keys, on_cpu=False), of_a_file({**described["facts"]}, tmp_path / "node.json")
    found = said(Case(environ=machine.environ, folder=case.folder, config=case.config, given=machine))
    for status, names in ((Status.PROBLEM, "problems"), (Status.WARNING, "warnings")):
        assert [each.subject for each in found if each.status is status] == described.get(names, []), found
    assert all(each.remedy for each in found if each.status is not Status.SKIPPED)
    assert [each for each in found if each.status is Status.SKIPPED] == []


def test_a_node_without_the_package_is_told_to_install_it_in_one_line(make_case: MakeCase, tmp_path: Path) -> None:
    bare = MACHINES["a bare H100 without an index of packages"]
    machine = of_a_file({**bare["facts"]}, tmp_path / "node.json")
    found = {each.subject: each for each in said(Case(environ={}, given=machine))}
    assert "transformers" in found["packages"].text
    assert found["packages"].remedy == "Run pip install 'agent-rl[sglang]'"


def test_a_task_of_slurm_is_recorded_with_the_address_of_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine that reads the file may have no scontrol."""
    program(tmp_path / "scontrol", "echo node1\necho node2")
    task = {"SLURM_NNODES": "2", "SLURM_NODEID": "1", "SLURM_LOCALID": "0", "SLURM_JOB_NODELIST": "node[1-2]"}
    monkeypatch.setenv("PATH", str(tmp_path))
    environ = Machine({**task, "SLURM_JOB_USER": "jane", "PATH": str(tmp_path)}).to_dict()["environ"]
    assert environ == {**task, "MASTER_ADDR": "node1"}
    assert Case(environ=environ).nodes is not None
    assert Machine({"HF_HOME": "/hf", "HF_TOKEN": "hf_1"}).to_dict()["environ"] == {"HF_HOME": "/hf"}
    assert Machine({"NNODES": "2"}).to_dict()["environ"] == {"NNODES": "2"}  # the doctor says that the rank is missing
