"""Facts of a machine: this one's are read, a file's are taken whole."""

import json
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.launch.doctor import machine
from agent_rl.launch.doctor.machine import FACTS, Machine, read_gpus
from agent_rl.launch.doctor.machine import _answers as answers
from tests.launch.doctor.conftest import node_facts, program


def test_this_machines_facts_go_through_a_file(tmp_path: Path) -> None:
    here = Machine({"PATH": "/bin", "HF_HUB_OFFLINE": "1", "AWS_SECRET_ACCESS_KEY": "hidden"})
    facts = here.to_dict()
    assert facts["environ"] == {"HF_HUB_OFFLINE": "1"}  # no variable that could be a secret
    assert facts["packages"]["verl"] == here.version("verl")
    (tmp_path / "node.json").write_text(json.dumps(facts))
    there = Machine.from_file(tmp_path / "node.json")
    assert all(getattr(there, name) == facts[name] for name in FACTS if name != "gpus")
    assert there.version("verl") == here.version("verl")
    assert there.version("no-such-package") is None


def test_whether_the_hub_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not answers({"HF_ENDPOINT": "http://127.0.0.1:9", "no_proxy": "*"})  # nothing listens there
    monkeypatch.setattr(machine, "HUB_S", 1.0)
    for code, does_answer in (("import sys; sys.argv[1]", True), ("import time; time.sleep(9)", False)):
        monkeypatch.setattr(machine, "ASK", code)
        assert answers({}) == does_answer


def test_a_file_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    facts = node_facts()
    del facts["glibc"]
    (tmp_path / "node.json").write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match=r"facts about a machine: KeyError\('glibc'\)"):
        Machine.from_file(tmp_path / "node.json")
    with pytest.raises(ConfigError, match="does not contain the facts about a machine"):
        Machine.from_file(tmp_path / "none.json")


def test_visible_gpus_are_chosen_as_cuda_does_from_the_lines_of_nvidia_smi(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    assert read_gpus(environ) == []
    program(tmp_path / "nvidia-smi", "echo 'NVIDIA-SMI has failed'; exit 9")
    assert read_gpus(environ) == []
    lines = [f"{index}, GPU-{index}b3d6a0e, NVIDIA H200, 143771, 3, 580.95.05, 9.0" for index in range(3)]
    lines += ["3, GPU-61aa0000-bbbb, NVIDIA H200, [N/A], 512, 580.95.05, 9.0", "some other line"]
    program(tmp_path / "nvidia-smi", "\n".join(f"echo '{line}'" for line in lines))
    first, *_, last = read_gpus(environ)
    assert (first.index, first.name, first.memory_mib, first.driver) == (0, "NVIDIA H200", 143771, "580.95.05")
    assert (last.memory_mib, last.used_mib) == (0, 512)
    for value, indices in {"2,0": [2, 0], "GPU-1b": [1], "": [], "-1": [], "1,9,2": [1]}.items():
        assert [gpu.index for gpu in read_gpus({**environ, "CUDA_VISIBLE_DEVICES": value})] == indices
