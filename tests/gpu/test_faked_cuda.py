"""The CUDA import path, and the arguments of every recipe's engines, where a GPU installation has no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from agent_rl.cpu import switch as cpu
from tests.gpu.faked_cuda import MODULES, WRONG

ROOT = Path(__file__).parents[2]


def lacking() -> str:
    """What of a GPU installation is not here; empty: nothing."""
    try:
        found = Version(version("sglang"))
    except PackageNotFoundError:
        return "SGLang is not installed"
    if found < Version("0.5.13"):
        return f"SGLang {found}, which is not the GPUs' (0.5.13)"
    import torch

    return "" if torch.version.cuda else "torch without CUDA"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the process with faked GPUs has found."""
    if why := lacking():
        pytest.skip(f"{why}: make test-engine installs what GPUs have")
    drop = {"VERL_PLATFORM", "PYTHONPATH", *cpu.ENVIRONMENT, *cpu.NO_GPUS}
    env = {name: value for name, value in os.environ.items() if name not in drop} | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tests.gpu.faked_cuda", str(tmp_path_factory.mktemp("cuda"))]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_everything_that_a_run_on_gpus_imports_can_be_imported(answers: dict[str, Any]) -> None:
    assert answers["cuda"] is True
    assert answers["modules"] == dict.fromkeys(MODULES, "")


def test_sglang_accepts_the_arguments_of_every_recipes_engines(answers: dict[str, Any]) -> None:
    refused = {name: why for name, why in answers["engines"].items() if why}
    assert [name.rpartition(".")[2] for name in refused] == [f"{WRONG}=1"], refused
    recipes = {path.parent.name for path in (ROOT / "recipes").glob("*/config.yaml")}
    assert {name.partition(" ")[0].rstrip(":") for name in answers["engines"]} == recipes
    assert sum(": " in name for name in answers["engines"]) > 5  # served models
