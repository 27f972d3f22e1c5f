"""Cases to check: the recipe gsm8k_calculator, healthy or with one thing broken."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from agent_rl.data import make_row, write_parquet
from agent_rl.doctor import machine
from agent_rl.doctor.case import Case
from agent_rl.doctor.machine import Machine
from agent_rl.launch.composition import compose
from agent_rl.preflight.check import Finding, Status

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/gsm8k_calculator"

MakeCase = Callable[..., Case]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

    folder = tmp_path_factory.mktemp("tiny_model")
    make_model(folder, make_tokenizer(CORPUS, folder, 512))
    return folder


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    return [
        make_row(
            question=f"What is {number}+1?", data_source="gsm8k", ground_truth=number + 1, split="train", index=number
        )
        for number in range(12)
    ]


@pytest.fixture(scope="session")
def parquet(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]) -> Path:
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    write_parquet(rows, path)
    return path


@pytest.fixture(scope="session")
def configs() -> dict[bool, DictConfig]:
    """Composed with and without VERL_PLATFORM=cpu."""
    composed = {}
    with pytest.MonkeyPatch.context() as patch:
        for on_cpu in (True, False):
            patch.setenv("VERL_PLATFORM", "cpu" if on_cpu else "")
            composed[on_cpu] = compose(RECIPE)
    return composed


@pytest.fixture(autouse=True)
def _hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub answers, and is not asked."""
    monkeypatch.setattr(machine, "_answers", lambda environ: True)


@pytest.fixture
def make_case(configs: dict[bool, DictConfig], parquet: Path, tiny_model: Path) -> MakeCase:
    """A case that is healthy but for the keys and variables that are given."""

    def make(
        keys: Mapping[str, Any] | None = None, *, on_cpu: bool = True, environ: Mapping[str, str] | None = None
    ) -> Case:
        config = configs[on_cpu].copy()
        healthy = {
            "data.train_files": str(parquet),
            "data.val_files": str(parquet),
            "actor_rollout_ref.model.path": str(tiny_model),
        }
        for key, value in {**healthy, **(keys or {})}.items():
            OmegaConf.update(config, key, value, force_add=True)
        return Case(
            environ={**({"VERL_PLATFORM": "cpu"} if on_cpu else {}), "PATH": "", **(environ or {})},
            folder=ROOT,
            config=config,
            recipe=str(RECIPE),
        )

    return make


def with_gpus(
    folder: Path, number: int, *, memory_mib: int = 81559, used_mib: int = 3, driver: str = "580.95.05"
) -> dict[str, str]:
    """An environment whose `nvidia-smi` lists these GPUs, in the form that the real one writes."""
    lines = [
        f"{index}, GPU-{index}b3d6a0e-0000, NVIDIA H100 80GB HBM3, {memory_mib}, {used_mib}, {driver}, 9.0"
        for index in range(number)
    ]
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)
    return {"PATH": str(folder)}


@functools.cache
def installed() -> dict[str, str]:
    """The packages of this environment."""
    return Machine({}).packages


def node_facts(gpus: int = 8, **changed: Any) -> dict[str, Any]:
    """The facts of a healthy node with so many H100 of 80 GB, as `agent-rl doctor --save-machine` writes them."""
    packages = {**installed(), "torch": "2.11.0", "sglang": "0.5.13", "cupy-cuda13x": "14.0.1"}
    facts = {
        "environ": {"PATH": "/usr/bin"},
        "gpus": [
            {"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559,
             "used_mib": 3, "driver": "580.95.05", "capability": "9.0"} for index in range(gpus)
        ],
        "device_file": True, "python": "3.12.3", "glibc": "2.39", "cores": 16 * gpus, "memory": 128 * gpus << 30,
        "shared_memory": 400 << 30, "disk": 4 << 40, "open_files": 1_048_576, "torch_cuda": "13.0",
        "libraries": ["libnuma.so.1", "libcudart.so.13"], "cuda_home": "/usr/local/cuda",
        "interfaces": ["eth0"], "missing_parts": [], "compiled": {"CUDA": "", "Python.h": ""},
        "ninja": "/usr/bin/ninja", "packages": packages, "hub_answers": True,
    }  # fmt: skip
    return {**facts, **changed}


def only(findings: Sequence[Finding] | Any) -> Finding:
    (finding,) = list(findings)
    return finding


def refused(findings: Any) -> str:
    """The only problem of a check, with its remedy."""
    finding = only([finding for finding in findings if finding.status is Status.PROBLEM])
    assert finding.remedy
    return f"{finding.text}. {finding.remedy}"


def statuses(findings: Any) -> dict[str, Status]:
    return {finding.subject: finding.status for finding in findings}
