"""What each check finds in a case that is healthy but for one thing: on this CPU, or on a node with eight H100."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agent_rl.launch.doctor import machine
from agent_rl.launch.doctor.checks import ray
from agent_rl.launch.doctor.checks.machine import STACK
from agent_rl.launch.doctor.diagnosis import all_checks
from agent_rl.preflight.check import Needs, Status
from tests.launch.doctor.conftest import MakeCase, cards, node_facts, worst

OWN, ROLLOUT, ACTOR = "actor_rollout_ref", "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
MODEL, SGLANG, ADDRESS = f"{OWN}.model.path", f"{ROLLOUT}.engine_kwargs.sglang", "127.0.0.1:1"
TURNS, EFFICIENCY = f"{ROLLOUT}.multi_turn.max_assistant_turns", "agent_rl.reward.efficiency"
TOOL_LENGTH, MODELS = f"{ROLLOUT}.multi_turn.max_tool_response_length", "agent_rl.reward.models"
GIB = 1 << 30
GPUS: dict[str, Any] = {}
SECOND = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "host0"}
JOINING = {"RAY_ADDRESS": "head:6379"}
SEPARATE = {f"{OWN}.hybrid_engine": False, f"{ROLLOUT}.n_gpus_per_node": 4, f"{ROLLOUT}.nnodes": 1}
ASYNC = {"trainer.v1.trainer_mode": "separate_async", **SEPARATE, "trainer.n_gpus_per_node": 4}
MINI, LOGICAL = f"{ACTOR}.ppo_mini_batch_size", "ray_kwargs.ray_init.num_cpus"
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
SAVED = {"trainer.save_freq": 1, "trainer.total_training_steps": 1_000_000}
HELPERS = {"own": {"path": "a", "n_gpus_per_node": 2}, "polite": {"path": "b", "placement": "shared"},
           "terse": {"path": "c", "placement": "shared"}}  # fmt: skip
JUDGE = {"kind": "judge", "config": {"url": f"http://{ADDRESS}", "model": "m", "total_s": 0.2}}
EIGHT = {f"{MODELS}.a": {"path": "a/b", "n_gpus_per_node": 2}, "trainer.n_gpus_per_node": 6}
EXACT = {"algorithm.adv_estimator": "agent_rl_turn", f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm",
         f"{ACTOR}.loss_scale_factor": 512, f"{ACTOR}.use_kl_loss": False}  # fmt: skip
BIASED: dict[str, dict[str, Any]] = {
    "'format' compares a prompt's samples": {"agent_rl.reward.format": {"weight": 1, "normalize": "group"}},
    "chosen by their outcome": {"algorithm.filter_groups.enable": True},
    "replaced": {"trainer.v1.sampler.sync_refill_failed_groups": True},
    "discounted": {"algorithm.gamma": 0.9},
    "older weights": {"trainer.v1.trainer_mode": "colocate_async"},
    "2 updates": {f"{ACTOR}.ppo_epochs": 2},
    "the number of sampled tokens": {f"{ACTOR}.loss_agg_mode": "token-mean"},
    "the longest response": {f"{ACTOR}.loss_scale_factor": None},
    "rollout_rs=seq_mean_k1": {"algorithm.rollout_correction.rollout_rs": "seq_mean_k1"},
    "rollout_is=token": {"algorithm.rollout_correction.rollout_is": "token"},
    "KL term": {f"{ACTOR}.use_kl_loss": True},
    "agent_rl.mask_void=turn": {"agent_rl.mask_void": "turn"},
    "agent_rl.mask_overlong=True": {"agent_rl.mask_overlong": True},
}
"""Which conditions of an exact turn gradient a configuration breaks."""


def shares(*each: float) -> dict[str, Any]:
    """Reward models that take these shares of the trainer's GPUs, and one that has its own."""
    taken = {f"{MODELS}.m{number}.gpu_memory_utilization": share for number, share in enumerate(each)}
    named = {f"{MODELS}.m{number}": {"path": "a/b", "placement": "shared"} for number in range(len(each))}
    return {**named, **taken, f"{MODELS}.own": {"path": "a/b", "gpu_memory_utilization": 0.9}}


def without(package: str, version: str = "") -> dict[str, Any]:
    """Packages in which one has another version, or is missing."""
    packages = {**node_facts()["packages"], package: version}
    return {"packages": {name: version for name, version in packages.items() if version}}


# check, keys, variables, facts of a node with GPUs (None: this machine on its CPU), status, part of the finding
FINDINGS: list[tuple[str, dict[str, Any], dict[str, str], dict[str, Any] | None, str, str]] = [
    ("installation.packages", {}, {}, without("verl", "0.8.0"), "problem", "agent_rl requires 0.9.1"),
    ("installation.packages", {}, {}, without("transformers", "5.6.0"), "problem", "(5.6.0): required"),
    ("installation.packages", {}, {}, without("tensordict", "0.9.0"), "problem", "pip install 'tensordict!=0.9.0"),
    ("installation.packages", {}, {}, without("sglang"), "problem", "sglang: is not installed -> Run pip"),
    ("installation.packages", {}, {}, without("sglang", "0.5.12"), "warning", "sglang==0.5.13 (0.5.12)"),
    ("installation.plugin", {}, {"VERL_USE_EXTERNAL_PLUGINS": "none"}, None, "problem", "keeps verl from loading"),
    ("installation.plugin", {}, {"VERL_USE_EXTERNAL_PLUGINS": "x, agent_rl"}, None, "ok", ""),
    ("machine.node", {}, {"CUDA_VISIBLE_DEVICES": ""}, GPUS, "ok", ""),
    ("machine.node", {}, {}, {"gpus": cards(driver="550.163.01")}, "problem", "driver: 550.163.01"),
    ("machine.node", {}, {}, {"cuda_home": ""}, "problem", "CUDA toolkit: none"),
    ("machine.node", {}, {}, {"missing_parts": ["version 13 (it is 12)"]}, "problem", "lacks version 13 (it is 12)"),
    ("machine.node", {}, {}, {"missing_parts": ["lib64/libcudart.so"]}, "problem", "/usr/local/cuda lacks lib64/libcu"),
    ("machine.node", {}, {}, {"libraries": ["libnuma.so.1"]}, "problem", "CUDA runtime: not found"),
    ("machine.node", {}, {}, {"libraries": ["libcudart.so.13"]}, "problem", "libnuma: not found"),
    ("machine.node", {}, {}, {"glibc": "2.31"}, "problem", "glibc: 2.31, but the run needs 2.34 or newer"),
    ("machine.node", {}, {}, {"gpus": cards(capability="7.5")}, "problem", "compute capability: 7.5"),
    ("machine.node", {}, {}, {"torch_cuda": "12.8"}, "problem", "torch's CUDA: 12.8"),
    ("machine.node", {}, {}, {"torch_cuda": None}, "problem", "torch without CUDA"),
    ("machine.node", ASYNC, {}, without("cupy-cuda13x"), "problem", "cupy: cupy-cuda13x is not installed"),
    ("machine.node", {MODEL: "recipes/quickstart/model"}, {}, GPUS, "problem", "head size: 16"),
    ("machine.node", {}, {}, {"compiled": {"ninja": "it is not installed"}}, "problem", "compiling: ninja: it is not"),
    ("machine.node", {}, {}, {"compiled": {"CUDA": "ld: cannot find"}}, "problem", "compiling: CUDA: ld: cannot find"),
    ("machine.node", {}, {}, {"compiled": {"Python.h": "no such"}}, "problem", "compiling: Python.h: no such"),
    ("machine.node", {}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, GPUS,
     "problem", "allocator: expandable"),
    ("machine.accelerator", {}, {"VERL_PLATFORM": ""}, None, "problem", "Set VERL_PLATFORM=cpu to use the CPU"),
    ("machine.accelerator", {}, {"VERL_PLATFORM": "", **JOINING}, None, "skipped", "cluster's machines"),
    ("machine.accelerator", {"trainer.device": "cuda"}, {}, None, "problem", "trainer.device is cuda"),
    ("machine.accelerator", {}, {}, GPUS, "ok", ""),
    ("machine.accelerator", {}, {"CUDA_VISIBLE_DEVICES": ""}, GPUS, "problem", "leaves no GPU -> Unset the"),
    ("machine.accelerator", {}, {}, {"gpus": []}, "warning", "nvidia-smi lists no GPU"),
    ("machine.folders", {}, {"HOME": "/tmp", "TMPDIR": "/scratch".ljust(60, "x")}, None, "ok", ""),
    ("machine.folders", {}, {"HOME": "/proc/1"}, None, "problem", "HOME: nothing can be written"),
    ("machine.folders", {}, {"RAY_TMPDIR": "/scratch".ljust(60, "x")}, None, "problem", "RAY_TMPDIR: "),
    ("machine.gpus_per_node", {}, {"CUDA_VISIBLE_DEVICES": "0,1"}, GPUS, "problem",
     "8 GPUs are needed, but this machine has 2, so the run would hang -> Set trainer.n_gpus_per_node to 2 or less"),
    ("machine.gpus_per_node", SEPARATE, {}, GPUS, "problem", "12 GPUs are needed, but this machine has 8"),
    ("machine.gpus_per_node", {"trainer.n_gpus_per_node": 9}, {}, None, "problem", "9 GPUs are needed, but Ray gets 8"),
    ("machine.gpus_per_node", EIGHT, {}, None, "ok", ""),
    ("machine.gpus_per_node", {**EIGHT, f"{MODELS}.c": {"path": "a/b"}}, {}, None, "problem", "9 GPUs are needed"),
    ("machine.gpus_in_use", {}, {}, {"gpus": cards(2, used_mib=60_000)}, "warning", "GPU 1: 58.6 of 80 GiB"),
    ("machine.tensor_parallel", {f"{ROLLOUT}.tensor_model_parallel_size": 3}, {}, GPUS, "problem", "16 attention"),
    ("machine.profile", {}, {"OMP_NUM_THREADS": "8"}, None, "warning", "OMP_NUM_THREADS: 8"),
    ("machine.profile", {"trainer.v1.trainer_mode": "sync"}, {}, None, "ok", ""),
    ("memory.gpu", {"trainer.n_gpus_per_node": 1}, {}, GPUS, "warning", "generating: tight, about"),
    ("memory.gpu", {"trainer.n_gpus_per_node": 1}, {}, {"gpus": cards(memory_mib=40_960)},
     "problem", "memory, training"),
    ("memory.gpu", {f"{ROLLOUT}.gpu_memory_utilization": 0.05}, {}, GPUS, "problem", "memory, engine: a pool of"),
    ("memory.gpu", {MODEL: "some/model"}, {}, GPUS, "skipped", "the number of parameters of some/model"),
    ("memory.host", {}, {}, {"memory": 100 * GIB}, "problem", "100.0 GiB"),  # as the recipe's README says
    ("memory.host", {}, {}, {"memory": 140 * GIB}, "ok", ""),
    ("memory.host", {f"{ACTOR}.fsdp_config.{kind}_offload": True for kind in ("param", "optimizer")}, {},
     {"memory": 140 * GIB}, "problem", "offloaded"),
    ("memory.host", {}, {"VERL_PLATFORM": ""}, None, "skipped", "this machine has no GPU"),
    ("memory.host", {}, {"VERL_PLATFORM": "cpu"}, {"memory": 4 * GIB}, "problem", "6 GiB for the processes"),
    ("memory.shared_memory", {}, {}, {"shared_memory": 64 << 20}, "problem", "--shm-size"),
    ("memory.shared_memory", {}, {}, {"shared_memory": 3 * GIB}, "warning", "Ray will use the disk"),
    ("memory.disk", SAVED, {}, GPUS, "problem", "1000000 checkpoint(s) of 34.5 GiB"),
    ("memory.disk", {**SAVED, "trainer.max_actor_ckpt_to_keep": 1}, {}, GPUS, "ok", "1 checkpoint(s)"),
    ("ray.ray_cluster", {}, SECOND, None, "ok", ""),
    ("ray.ray_cluster", {}, {"RAY_ADDRESS": ADDRESS}, GPUS, "problem", "no Ray cluster answers at RAY_ADDRESS="),
    ("ray.nodes", {"trainer.nnodes": 2}, {}, GPUS, "problem", "so it would hang -> Set NNODES"),
    ("ray.nodes", {"trainer.nnodes": 2}, SECOND, GPUS, "ok", ""),
    ("ray.nodes", {"trainer.nnodes": 3}, SECOND, GPUS, "problem", "2 node(s) start the run, so it would hang"),
    ("ray.nodes", {"trainer.nnodes": 1}, SECOND, GPUS, "warning", "some nodes would be idle"),
    ("ray.nodes", {"trainer.nnodes": 2}, JOINING, GPUS, "ok", ""),
    ("ray.nodes", {}, {**SECOND, "NODE_RANK": "2"}, GPUS, "problem", "NODE_RANK: there is no rank 2 among 2 nodes"),
    ("ray.nodes", {"trainer.nnodes": 2}, SECOND, {"interfaces": ["eth0", "ib0"]},
     "warning", "-> Set NCCL_SOCKET_IFNAME"),
    ("ray.nodes", {"trainer.nnodes": 2}, {**SECOND, "GLOO_SOCKET_IFNAME": "ib0"}, {"interfaces": ["eth0", "ib0"]},
     "ok", ""),
    ("ray.logical_cpus", {LOGICAL: 8, UNITS: 8}, {}, None, "problem", "13 are needed (8 storage units"),
    ("ray.logical_cpus", {LOGICAL: 33}, {}, GPUS, "problem", "34 are needed"),
    ("ray.logical_cpus", {}, {}, {"cores": 8}, "problem", "8 (the machine's cores)"),
    ("ray.logical_cpus", {LOGICAL: 45, MODELS: HELPERS}, {}, GPUS,
     "problem", "46 are needed (8 storage units, 4 for each of 8"),
    ("ray.logical_cpus", {LOGICAL: 33, "trainer.nnodes": 2}, SECOND, GPUS, "ok", ""),  # 66 on two machines
    ("ray.logical_cpus", {}, JOINING, GPUS, "skipped", ""),
    ("configuration.values", {"trainer.experiment_name": "${oc.env:NO_SUCH_VARIABLE}"}, {}, None, "problem",
     "trainer.experiment_name: Environment variable 'NO_SUCH_VARIABLE' not found"),
    ("configuration.model", {}, {}, None, "ok", ""),
    ("configuration.model", {MODEL: "some/model"}, {}, None, "skipped", "To check the model, run hf"),
    ("configuration.model", {MODEL: "some/model"}, {"HF_HUB_OFFLINE": "1"}, None, "problem", "Unset HF_HUB_OFFLINE"),
    ("configuration.model", {MODEL: "recipes/model"}, {}, None, "problem", "although the first part"),
    ("configuration.model", {MODEL: "/nowhere/model"}, {}, None, "ok", ""),  # the launcher's check reports it
    ("configuration.context", {}, {}, None, "ok", ""),
    ("configuration.context", {"data.max_response_length": 2048}, {}, None, "problem", "the model's 2048 positions"),
    ("configuration.context", {"data.max_response_length": 1024}, {}, None,
     "warning", "Set data.max_response_length=1018"),
    ("configuration.context", {MODEL: "some/model"}, {}, None, "skipped", ""),
    ("configuration.validation", {}, {}, None, "ok", ""),
    ("configuration.validation", {}, {}, GPUS, "ok", ""),
    ("configuration.validation", {"data.train_batch_size": 3, "trainer.n_gpus_per_node": 4}, {}, None, "problem",
     "real_train_batch_size (6) must be divisible"),
    ("configuration.validation", {MINI: 8}, {}, None, "problem", "must be >= actor.ppo_mini_batch_size (8)"),
    ("configuration.validation", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": None}, {}, None, "problem", "at least one"),
    ("configuration.validation", {f"{ROLLOUT}.val_kwargs.do_sample": True, f"{ROLLOUT}.temperature": 0}, {}, None,
     "problem", "temp"),
    ("configuration.run_folder", {"agent_rl.run.folder": f"{__file__}/x"}, {}, None, "problem", "is in the way"),
    ("configuration.mini_batches", {MINI: 3, "trainer.n_gpus_per_node": 4}, {}, None,
     "problem", "mini-batch: 3 prompts x"),
    ("configuration.mini_batches", {MINI: 3, f"{ROLLOUT}.n": 8}, {}, None, "warning", "mini-batch: 3 does not divide"),
    ("configuration.mini_batches", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3}, {}, None, "problem", "micro-batch: "),
    ("configuration.mini_batches", {f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 3}, {}, None,
     "problem", "micro-batch: "),
    ("configuration.mini_batches", {f"{ACTOR}.ppo_max_token_len_per_gpu": 3000}, {}, GPUS, "problem",
     "less than the longest prompt and response together, 3072"),
    ("configuration.mini_batches",
     {"trainer.v1.trainer_mode": "separate_async", "trainer.v1.separate_async.parameter_sync_step": 2}, {}, None,
     "problem", "Set data.train_batch_size=8"),
    ("data.row_count", {"data.train_batch_size": 13, "trainer.total_training_steps": None}, {}, None, "problem",
     "12 rows are fewer than data.train_batch_size=13"),
    ("data.row_count", {"data.train_batch_size": 5, "trainer.total_epochs": 3, "trainer.total_training_steps": None},
     {}, None, "ok", ""),
    ("data.row_count", {"trainer.total_training_steps": 7}, {}, None, "ok", ""),
    ("data.row_count", {"data.train_files": "x.parquet"}, {}, None, "skipped", ""),
    ("reward.weights", {}, {}, None, "ok", ""),
    ("reward.weights", {f"agent_rl.reward.{part}.weight": 0 for part in ("correctness", "efficiency", "format")}, {},
     None, "problem", "every weight is 0"),
    ("reward.weights", {"agent_rl.reward.x": 1}, {}, None, "problem", "agent_rl.reward.x: unknown key"),
    ("reward.giving_up", {f"{EFFICIENCY}.gate": "correctness >= 0"}, {}, None, "warning",
     "giving up pays 0, but a wrong answer after honest work pays -0.4 -> Set agent_rl.reward.efficiency: {gate: "),
    ("reward.giving_up", {f"{EFFICIENCY}.gate": "correctness >= 0", TURNS: 4}, {}, None, "ok", ""),
    ("reward.giving_up", {"agent_rl.reward.per_data_source.shop.efficiency.gate": "correctness >= 0"}, {}, None,
     "warning", "(data sources shop)"),
    ("reward.giving_up", {f"{EFFICIENCY}.gate": "format <= 0", "agent_rl.reward.correctness.scorer": "none"}, {}, None,
     "ok", ""),
    ("reward.endpoints", {}, {}, None, "ok", ""),
    ("reward.endpoints", {"agent_rl.reward.components.nice": JUDGE}, {}, None, "problem",
     "config.url: http://127.0.0.1:1/v1 does not answer"),
    ("reward.endpoints", {"agent_rl.reward.components.nice": JUDGE}, {}, GPUS, "skipped", "another machine"),
    ("reward.models", {f"{MODELS}.nice.path": "<model>"}, {}, None, "warning", "returns a hidden state"),
    ("reward.models", {f"{MODELS}.nice": {"path": "recipes/quickstart/model", "kind": "generative"}}, {},
     None, "ok", ""),
    ("reward.models", {f"{MODELS}.nice.path": "docs"}, {}, None, "problem", "model nice: docs lacks config.json"),
    ("reward.models", {f"{MODELS}.nice.path": "some/model"}, {}, None, "skipped", ""),
    ("reward.models", {f"{MODELS}.nice.path": "some/model"}, {"TRANSFORMERS_OFFLINE": "1"}, None,
     "problem", "model nice: "),
    ("reward.shares", shares(0.4, 0.4), {}, GPUS, "ok", ""),
    ("reward.shares", shares(0.5, 0.45), {}, GPUS, "warning", "which leaves little memory for the trainer"),
    ("reward.shares", shares(0.5, 0.5), {}, GPUS, "problem", "which is 1 in total -> Lower gpu_memory_utilization"),
    ("reward.turn_credit", EXACT, {}, None, "ok", ""),
    ("reward.turn_credit", {"algorithm.adv_estimator": "rloo", "algorithm.gamma": 0.9}, {}, None, "ok", ""),
    *(("reward.turn_credit", {**EXACT, **keys}, {}, None, "warning", text) for text, keys in BIASED.items()),
    ("tools.tool_file", {}, {}, None, "ok", ""),
    ("tools.tool_file", {f"{ROLLOUT}.multi_turn.tool_config_path": None}, {}, None, "skipped", ""),
    ("tools.tool_file", {TOOL_LENGTH: 256}, {}, None, "warning", "results are cut at 256 characters"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "keys", "environ", "facts", "status", "text"), FINDINGS, ids=[f"{row[0]}-{row[5]}" for row in FINDINGS]
)
def test_one_thing_is_different(
    make_case: MakeCase,
    tmp_path: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    keys: dict[str, Any],
    environ: dict[str, str],
    facts: dict[str, Any] | None,
    status: str,
    text: str,
) -> None:
    monkeypatch.setattr(machine, "has_accelerator", lambda: False)
    monkeypatch.setattr(ray, "ray_folder", lambda environ: str(tmp_path))
    keys = {key: str(tiny_model) if value == "<model>" else value for key, value in keys.items()}
    case = make_case(keys, on_cpu=facts is None, environ=environ, facts=facts)
    module, function = check.split(".")
    found = worst(getattr(import_module(f"agent_rl.launch.doctor.checks.{module}"), function)(case))
    assert found is not None
    assert found.status.value == status, found
    assert text in f"{found.subject}: {found.text} -> {found.remedy}"
    assert found.remedy or status in ("ok", "skipped")


def test_a_healthy_case_has_no_problem(make_case: MakeCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "ray_folder", lambda environ: str(tmp_path))
    checks = [one for one in all_checks() if one.needs is not Needs.VERL]
    bad = [each for one in checks for each in one(make_case()) if each.status in (Status.PROBLEM, Status.WARNING)]
    assert {each.subject for each in bad} <= {"host memory", "disk"}  # which other programs may have taken


def test_each_row_of_the_table_of_a_node_is_tried() -> None:
    tried = {row[5].partition(":")[0] for row in FINDINGS if row[0] == "machine.node"}
    assert {row.subject for row in STACK} <= tried
    assert all(row.source for row in STACK)
