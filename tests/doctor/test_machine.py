"""Facts of a machine: this one's are read, a file's are taken whole, and each of 25 faults of a node is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.doctor import machine
from agent_rl.doctor.case import Case
from agent_rl.doctor.checks.stack import STACK
from agent_rl.doctor.diagnosis import all_checks, run_check, run_checks
from agent_rl.doctor.machine import FACTS, Machine
from agent_rl.doctor.machine import _answers as answers
from agent_rl.errors import ConfigError
from agent_rl.preflight.check import Finding, Needs, Status
from tests.doctor.conftest import MakeCase, node_facts

Facts = dict[str, Any]
ROLLOUT = "actor_rollout_ref.rollout"
GROUPS = ("installation", "machine", "Ray")


def test_this_machines_facts_go_through_a_file(tmp_path: Path) -> None:
    here = Machine({"PATH": "/bin", "HF_HUB_OFFLINE": "1", "AWS_SECRET_ACCESS_KEY": "hidden"})
    facts = here.to_dict()
    assert facts["environ"] == {"HF_HUB_OFFLINE": "1"}  # no variable that could be a secret
    assert facts["packages"]["verl"] == here.version("verl")
    (tmp_path / "node.json").write_text(json.dumps(facts))
    there = Machine.from_file(tmp_path / "node.json")
    assert [getattr(there, name) for name in FACTS if name != "gpus"] == [
        facts[name] for name in FACTS if name != "gpus"
    ]
    assert there.version("verl") == here.version("verl")
    assert there.version("no-such-package") is None


def test_the_hub_answers_with_any_status_and_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class NotFound(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), NotFound) as server:
        address = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "no_proxy": "*"}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert answers(address)
        server.shutdown()
        monkeypatch.setattr(machine, "HUB_S", 0.5)
        assert not answers(address)  # the port is open
    assert not answers(address)


def test_a_file_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    facts = node_facts()
    del facts["glibc"]
    (tmp_path / "node.json").write_text(json.dumps({**facts, "gpu": []}))
    with pytest.raises(ConfigError, match="missing or unknown: glibc, gpu"):
        Machine.from_file(tmp_path / "node.json")
    with pytest.raises(ConfigError, match="no facts of a machine"):
        Machine.from_file(tmp_path / "none.json")


def found(make_case: MakeCase, facts: Facts, keys: dict[str, Any]) -> list[Finding]:
    case = make_case(keys, on_cpu=False)
    machine = Machine(facts["environ"], facts)
    case = Case(environ=facts["environ"], folder=case.folder, config=case.config, given=machine)
    checks = [each for each in all_checks() if each.group in GROUPS and each.needs is not Needs.VERL]
    return [finding for each in checks for finding in run_check(each, case)]


@pytest.fixture
def seven_b(tmp_path: Path) -> str:
    """The shape of Qwen2.5-7B, without its weights."""
    shape = {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    shape |= {"intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False}
    (tmp_path / "seven_b").mkdir()
    (tmp_path / "seven_b/config.json").write_text(json.dumps({"model_type": "qwen2", **shape}))
    return str(tmp_path / "seven_b")


def test_a_healthy_node_is_ready(make_case: MakeCase, seven_b: str) -> None:
    keys = {"actor_rollout_ref.model.path": seven_b}
    assert [each for each in found(make_case, node_facts(), keys) if each.status is not Status.OK] == []


def gpus(**changed: Any) -> Callable[[Facts], None]:
    def change(facts: Facts) -> None:
        facts["gpus"] = [{**gpu, **changed} for gpu in facts["gpus"]]

    return change


def fact(name: str, value: Any) -> Callable[[Facts], None]:
    return lambda facts: facts.update({name: value})


def package(name: str, version: str | None) -> Callable[[Facts], None]:
    def change(facts: Facts) -> None:
        facts["packages"].pop(name, None)
        if version is not None:
            facts["packages"][name] = version

    return change


def variable(name: str, value: str) -> Callable[[Facts], None]:
    return lambda facts: facts["environ"].update({name: value})


SEPARATE = {
    "trainer.v1.trainer_mode": "separate_async", "actor_rollout_ref.hybrid_engine": False,
    "trainer.n_gpus_per_node": 4, f"{ROLLOUT}.n_gpus_per_node": 4, f"{ROLLOUT}.nnodes": 1,
}  # fmt: skip

FAULTS: dict[str, tuple[Callable[[Facts], None], dict[str, Any], str, str]] = {
    "driver": (gpus(driver="550.163.01"), {}, "driver", "550.163.01"),
    "toolkit": (fact("cuda_home", ""), {}, "CUDA toolkit", "none"),
    "old toolkit": (
        fact("missing_parts", ["version 13 (it is 12)"]), {}, "CUDA toolkit", "lacks version 13 (it is 12)",
    ),
    "runtime": (fact("libraries", ["libnuma.so.1"]), {}, "CUDA runtime", "not found"),
    "libnuma": (fact("libraries", ["libcudart.so.13"]), {}, "libnuma", "not found"),
    "glibc": (fact("glibc", "2.31"), {}, "glibc", "2.31"),
    "turing": (gpus(capability="7.5"), {}, "compute capability", "7.5"),
    "torch for cuda 12": (fact("torch_cuda", "12.8"), {}, "torch's CUDA", "12.8"),
    "torch for cpus": (fact("torch_cuda", None), {}, "torch's CUDA", "torch without CUDA"),
    "ninja": (fact("ninja", ""), {}, "ninja", "none"),
    "cupy": (package("cupy-cuda13x", None), SEPARATE, "cupy", "is not installed"),
    "incomplete toolkit": (
        fact("missing_parts", ["lib64/libcudart.so"]), {}, "CUDA toolkit", "/usr/local/cuda lacks lib64/libcudart.so",
    ),
    "small heads": (
        lambda facts: None, {"actor_rollout_ref.model.path": "recipes/quickstart/model"}, "size of a head", "16",
    ),
    "linking": (fact("compiled", {"CUDA": "ld: cannot find -lcudart"}), {}, "compiling", "with CUDA: ld: cannot"),
    "Python's headers": (fact("compiled", {"Python.h": "no such file"}), {}, "compiling", "with Python.h: no such"),
    "allocator": (
        variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), {}, "allocator", "expandable_segments:True",
    ),
    "open files": (fact("open_files", 1024), {}, "open files", "1,024"),
    "shared memory": (fact("shared_memory", 64 << 20), {}, "/dev/shm", "64 MiB"),
    "disk": (fact("disk", 20 << 30), {"trainer.save_freq": 5, "trainer.total_training_steps": 100}, "disk", "20.0 GiB"),
    "host memory": (fact("memory", 64 << 30), {}, "host memory", "64.0 GiB"),
    "cores": (fact("cores", 8), {}, "logical CPUs", "8 (the machine's cores)"),
    "too few gpus": (variable("CUDA_VISIBLE_DEVICES", "0,1,2,3"), {}, "GPUs per node", "8 wanted, 4 here"),
    "busy": (gpus(used_mib=60_000), {}, "GPU memory in use", "58.6 of 80 GiB"),
    "small": (gpus(memory_mib=24_564), {}, "memory, training", "of 24.0 GiB"),
    "no gpu": (fact("gpus", []), {}, "accelerator", "nvidia-smi does not list"),
    "sglang": (package("sglang", None), {}, "engine", "sglang is not installed"),
    "old sglang": (package("sglang", "0.5.12"), {}, "sglang set", "sglang==0.5.13 (0.5.12)"),
    "verl": (package("verl", "0.8.0"), {}, "verl", "0.8.0"),
    "python": (fact("python", "3.13.1"), {}, "Python", "3.13.1"),
    "plugins off": (variable("VERL_USE_EXTERNAL_PLUGINS", "none"), {}, "verl plugin", "keeps verl from loading"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(make_case: MakeCase, seven_b: str, name: str) -> None:
    plant, keys, subject, text = FAULTS[name]
    facts = node_facts()
    plant(facts)
    findings = found(make_case, facts, {"actor_rollout_ref.model.path": seven_b, **keys})
    named = [each for each in findings if each.subject == subject]
    assert [each.status for each in named] in ([Status.PROBLEM], [Status.WARNING]), named
    assert text in named[0].text
    assert named[0].remedy


def test_there_are_25_faults_and_each_row_of_the_table_is_tried() -> None:
    assert len(FAULTS) >= 25
    tried = {subject for *_, subject, _ in FAULTS.values()}
    assert {row.subject for row in STACK} <= tried
    assert all(row.source for row in STACK)


def test_no_choice_of_backends_does_without_a_toolkit(make_case: MakeCase, seven_b: str) -> None:
    sglang = f"{ROLLOUT}.engine_kwargs.sglang"
    keys = {f"{sglang}.attention_backend": "triton", f"{sglang}.sampling_backend": "pytorch"}
    findings = found(make_case, node_facts(cuda_home=""), {**keys, "actor_rollout_ref.model.path": seven_b})
    assert [each.subject for each in findings if each.status is Status.PROBLEM] == ["CUDA toolkit"]


def test_an_offline_node_without_flash_attn_is_ready(make_case: MakeCase, seven_b: str) -> None:
    facts = node_facts(environ={"PATH": "/usr/bin", "HF_HUB_OFFLINE": "1"})
    findings = found(make_case, facts, {"actor_rollout_ref.model.path": seven_b})
    assert [each for each in findings if each.status is not Status.OK] == []


def test_a_config_can_be_omitted() -> None:
    facts = node_facts()
    case = Case(environ=facts["environ"], given=Machine(facts["environ"], facts), config=OmegaConf.create({}))
    assert {each.status for each in run_checks(case, Needs.MACHINE) if each.subject == "driver"} == {Status.OK}
