"""Logs the phases of start-up and of each step, for the terminal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent_rl.cpu import switch

PREFIX = "agent_rl stage: "
"""The prefix of a log line that announces a stage."""
SAMPLING = "sampling"
"""The stage that begins each step."""
ENGINE = "engine"
COMPILING = (
    "agent_rl: the engine compiles its kernels, which takes an estimated 2 to 4 minutes at the first start on a "
    "machine; the kernels are kept in ~/.cache"
)


@dataclass(frozen=True)
class Stage:
    """The start of a phase of a run.

    Attributes:
        what: the phase, in a few words.
        step: the training step; 0 before the first step.
        time: seconds since the epoch.
    """

    what: str
    step: int
    time: float


def read_stage(line: str) -> Stage | None:
    """Return the stage that a log line announces, or None for any other line."""
    if not line.startswith(PREFIX):
        return None
    try:
        record = json.loads(line.removeprefix(PREFIX))
        return Stage(str(record["what"]), int(record["step"]), float(record["time"]))
    except (ValueError, KeyError, TypeError):  # two processes wrote to the same line
        return None


def compiles_kernels(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the engine must still compile its kernels on this machine; false on a CPU."""
    cache = Path(environ.get("TVM_FFI_CACHE_DIR") or "~/.cache/tvm-ffi").expanduser()
    return not switch.is_selected() and not any(cache.glob("sgl_kernel_jit_*"))


def announce(what: str, step: int = 0) -> None:
    """Log that a phase of the run starts."""
    print(PREFIX + json.dumps({"what": what, "step": step, "time": round(time.time(), 2)}), flush=True)
    if what == ENGINE and compiles_kernels():
        print(COMPILING, flush=True)
