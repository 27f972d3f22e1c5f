"""The quickstart's model and the script that teaches small models, for tests that need a model with habits."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

__all__ = ["MODEL", "teaching"]

MODEL = Path(__file__).parents[1] / "recipes/quickstart/model"
"""It calls the calculator, well or badly, and answers; its `made.json` says how it was made. Read it only."""
SCRIPT = MODEL.parent / "warm_start.py"


@contextmanager
def teaching() -> Iterator[Any]:
    """The script as a module, with one thread of torch for as long as it is used."""
    spec = importlib.util.spec_from_file_location("quickstart_warm_start", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield module
    finally:
        torch.set_num_threads(threads)
