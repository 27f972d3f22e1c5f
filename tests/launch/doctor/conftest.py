"""Cases to check: the recipe gsm8k_calculator, healthy or with one thing broken."""

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from safetensors.numpy import save_file

from agent_rl.data import write_parquet
from agent_rl.launch.composition import compose
from agent_rl.launch.doctor import machine
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.machine import Machine
from agent_rl.preflight.check import Finding, Status
from tests.support.rows import sum_row

ROOT = Path(__file__).parents[3]
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
    return [sum_row(number) for number in range(12)]


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


SHAPES = {
    "0.5B": ("qwen2", 896, 24, 14, 2, 4864, 151_936, True),
    "3B": ("qwen2", 2048, 36, 16, 2, 11_008, 151_936, True),
    "7B": ("qwen2", 3584, 28, 28, 4, 18_944, 152_064, False),
    "8B": ("qwen3", 4096, 36, 32, 8, 12_288, 151_936, False),
}
"""Of Qwen2.5 and Qwen3, as published."""


def shaped(folder: Path, size: str) -> str:
    """A folder with the files of a model of this size, and no weights in them."""
    names = ("model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    names += ("intermediate_size", "vocab_size", "tie_word_embeddings")
    (folder / "config.json").write_text(json.dumps(dict(zip(names, SHAPES[size], strict=True))))
    (folder / "tokenizer.json").write_text("{}")
    save_file({}, folder / "model.safetensors")
    return str(folder)


@pytest.fixture(scope="session")
def three_b(tmp_path_factory: pytest.TempPathFactory) -> str:
    return shaped(tmp_path_factory.mktemp("three_b"), "3B")


@pytest.fixture
def make_case(configs: dict[bool, DictConfig], parquet: Path, tiny_model: Path, three_b: str) -> MakeCase:
    """A case that is healthy but for the keys, variables and facts that are given; with facts, a node with GPUs."""

    def make(
        keys: Mapping[str, Any] | None = None,
        *,
        on_cpu: bool = True,
        environ: Mapping[str, str] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Case:
        config = configs[on_cpu].copy()
        healthy = {
            "data.train_files": str(parquet),
            "data.val_files": str(parquet),
            "actor_rollout_ref.model.path": str(tiny_model) if facts is None else three_b,
        }
        for key, value in {**healthy, **(keys or {})}.items():
            OmegaConf.update(config, key, value, force_add=True)
        variables = {**({"VERL_PLATFORM": "cpu"} if on_cpu else {}), "PATH": "", **(environ or {})}
        given = None if facts is None else Machine(variables, {**node_facts(), **facts})
        return Case(environ=variables, folder=ROOT, config=config, recipe=str(RECIPE), given=given)

    return make


@functools.cache
def installed() -> dict[str, str]:
    """The packages of this environment."""
    return Machine({}).packages


def cards(gpus: int = 8, **changed: Any) -> list[dict[str, Any]]:
    """So many H100 of 80 GB."""
    card = {"name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "used_mib": 3, "driver": "580.95.05", **changed}
    return [{"index": index, "uuid": f"GPU-{index}", "capability": "9.0", **card} for index in range(gpus)]


def node_facts(gpus: int = 8, **changed: Any) -> dict[str, Any]:
    """The facts of a healthy node with these GPUs, as `agent-rl doctor --save-machine` writes them."""
    packages = {**installed(), "torch": "2.11.0", "sglang": "0.5.13", "cupy-cuda13x": "14.0.1"}
    facts = {
        "environ": {"PATH": "/usr/bin"}, "gpus": cards(gpus),
        "device_file": True, "glibc": "2.39", "cores": 16 * gpus, "memory": 128 * gpus << 30,
        "shared_memory": 400 << 30, "disk": 4 << 40, "torch_cuda": "13.0",
        "libraries": ["libnuma.so.1", "libcudart.so.13"], "cuda_home": "/usr/local/cuda",
        "interfaces": ["eth0"], "missing_parts": [], "compiled": {"ninja": "", "CUDA": "", "Python.h": ""},
        "packages": packages, "hub_answers": True,
    }  # fmt: skip
    return {**facts, **changed}


def program(path: Path, what: str) -> None:
    """A program that does this in a shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{what}\n")
    path.chmod(0o755)


def only(findings: Sequence[Finding] | Any) -> Finding:
    (finding,) = list(findings)
    return finding


def worst(findings: Any) -> Finding | None:
    """The most serious finding; None: there is none."""
    order = (Status.OK, Status.SKIPPED, Status.WARNING, Status.PROBLEM)
    return max(findings, key=lambda finding: order.index(finding.status), default=None)


def refused(findings: Any) -> str:
    """The only problem of a check, with its remedy."""
    finding = only([finding for finding in findings if finding.status is Status.PROBLEM])
    assert finding.remedy
    return f"{finding.text}. {finding.remedy}"
