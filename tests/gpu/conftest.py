"""What the GPU tests share: an environment without the CPU switch, the model, the search for what a run left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent_rl.cpu import switch as cpu
from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer
from tests.e2e.conftest import run_processes

__all__ = ["on_gpu", "run_processes", "tiny_model"]


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undoes for child processes what tests/conftest.py sets, and what importing verl with it has set."""
    for name in ("VERL_PLATFORM", *cpu.ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(path for path in paths if path not in ("", str(cpu.STAND_INS_DIR)))
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # everything is made on the spot


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model whose heads of 64 CUDA's attention kernels accept, and that two GPUs can share.

    Its weights are large enough that it prefers some tokens: among 512 equally likely ones no difference between
    engine and trainer would show.
    """
    folder = tmp_path_factory.mktemp("tiny_model")
    tokenizer = make_tokenizer(CORPUS, folder, 512)
    make_model(folder, tokenizer, hidden=256, layers=2, heads=4, max_positions=4096, init_std=0.12)
    return folder
