from pathlib import Path

import pytest

from agent_rl.doctor import machine as facts
from agent_rl.doctor.checks import machine
from agent_rl.preflight.check import Status
from tests.doctor.conftest import MakeCase, only, with_gpus


def test_no_accelerator_and_no_switch(make_case: MakeCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "has_accelerator", lambda: False)
    finding = only(machine.accelerator(make_case(on_cpu=False)))
    assert finding.status is Status.PROBLEM
    assert finding.remedy == "Set VERL_PLATFORM=cpu to use the CPU"
    assert only(machine.accelerator(make_case())).status is Status.OK
    elsewhere = make_case(on_cpu=False, environ={"RAY_ADDRESS": "10.0.0.1:6379"})
    assert only(machine.accelerator(elsewhere)).status is Status.SKIPPED


def test_folders_in_which_nothing_can_be_kept(make_case: MakeCase) -> None:
    long = "/scratch".ljust(60, "x")
    for environ in ({"HOME": "/proc/1"}, {"RAY_TMPDIR": long}):
        assert only(machine.folders(make_case(environ=environ))).status is Status.PROBLEM
    assert not list(machine.folders(make_case(environ={"HOME": "/tmp", "TMPDIR": long})))


def test_the_cpu_was_chosen_but_the_profile_is_not_there(make_case: MakeCase) -> None:
    finding = only(machine.accelerator(make_case({"trainer.device": "cuda"})))
    assert finding.status is Status.PROBLEM
    assert "trainer.device is cuda" in finding.text


def test_gpus_are_counted_and_named(make_case: MakeCase, tmp_path: Path) -> None:
    environ = with_gpus(tmp_path, 8)
    case = make_case(on_cpu=False, environ=environ)
    assert only(machine.accelerator(case)).text == "8 x NVIDIA H100 80GB HBM3, 80 GiB each, driver 580.95.05"
    assert only(machine.gpus_per_node(case)).status is Status.OK
    fewer = make_case(on_cpu=False, environ={**environ, "CUDA_VISIBLE_DEVICES": "0,1"})
    finding = only(machine.gpus_per_node(fewer))
    assert finding.status is Status.PROBLEM
    assert "8 wanted, 2 here" in finding.text
    assert "trainer.n_gpus_per_node to 2 or less" in finding.remedy


def test_engines_on_gpus_of_their_own(make_case: MakeCase, tmp_path: Path) -> None:
    own = "actor_rollout_ref"
    keys = {f"{own}.hybrid_engine": False, f"{own}.rollout.n_gpus_per_node": 4, f"{own}.rollout.nnodes": 1}
    keys |= {f"{own}.rollout.tensor_model_parallel_size": 4}
    case = make_case(keys, on_cpu=False, environ=with_gpus(tmp_path, 8))
    assert "12 wanted, 8 here" in only(machine.gpus_per_node(case)).text
    assert "1 engine on 4 GPU(s)" in only(machine.tensor_parallel(case)).text
    cpu = make_case({"trainer.n_gpus_per_node": 9})
    assert "Ray gets 8" in only(machine.gpus_per_node(cpu)).text


def test_hidden_gpus_are_a_problem_with_a_remedy(
    make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "has_accelerator", lambda: True)
    case = make_case(on_cpu=False, environ={**with_gpus(tmp_path, 1), "CUDA_VISIBLE_DEVICES": ""})
    finding = only(machine.accelerator(case))
    assert finding.status is Status.PROBLEM
    assert "CUDA_VISIBLE_DEVICES" in finding.remedy or "Unset" in finding.remedy


def test_a_gpu_that_others_fill(make_case: MakeCase, tmp_path: Path) -> None:
    case = make_case(on_cpu=False, environ=with_gpus(tmp_path, 2, used_mib=60_000))
    finding = only(machine.gpus_in_use(case))
    assert finding.status is Status.WARNING
    assert "GPU 1: 58.6 of 80 GiB" in finding.text
    assert not list(machine.gpus_in_use(make_case()))


@pytest.mark.parametrize(
    ("size", "status", "text"),
    [(1, "ok", "8 engines"), (2, "ok", "4 engines"), (8, "problem", "4 attention")],
)
def test_tensor_parallel_size_must_divide_the_heads(make_case: MakeCase, size: int, status: str, text: str) -> None:
    case = make_case({"actor_rollout_ref.rollout.tensor_model_parallel_size": size}, on_cpu=False)
    finding = only(machine.tensor_parallel(case))
    assert finding.status.value == status
    assert text in finding.text


def test_threads_that_fight_for_the_cores(make_case: MakeCase) -> None:
    findings = {finding.subject: finding for finding in machine.cores(make_case(environ={"OMP_NUM_THREADS": "8"}))}
    assert findings["OMP_NUM_THREADS"].status is Status.WARNING
    assert "OMP_NUM_THREADS" not in {finding.subject for finding in machine.cores(make_case())}
