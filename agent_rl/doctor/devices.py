"""The NVIDIA GPUs of this machine, as `nvidia-smi` lists them: no library is loaded and no GPU memory is used."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Gpu", "parse_gpus", "read_gpus", "visible"]

TIMEOUT_S = 10.0
QUERY = "index,uuid,name,memory.total,memory.used,driver_version,compute_cap"


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in MiB."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int
    driver: str
    capability: str
    """Compute capability, as `9.0`."""


def read_gpus(environ: Mapping[str, str]) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` allows; none without a working `nvidia-smi`."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return []
    command = [program, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return visible(parse_gpus(done.stdout), environ.get("CUDA_VISIBLE_DEVICES"))


def parse_gpus(text: str) -> list[Gpu]:
    """`nvidia-smi`'s lines of comma-separated values; memory that it does not know ("[N/A]") counts as 0."""
    gpus = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 7 and parts[0].isdigit():
            index, total, used = (int(part) if part.isdigit() else 0 for part in (parts[0], parts[3], parts[4]))
            gpus.append(Gpu(index, parts[1], parts[2], total, used, *parts[5:]))
    return gpus


def visible(gpus: list[Gpu], chosen: str | None) -> list[Gpu]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names, by index or start of the uuid; an unknown one ends the list."""
    if chosen is None:
        return gpus
    visible: list[Gpu] = []
    for name in filter(None, (part.strip() for part in chosen.split(","))):
        found = [gpu for gpu in gpus if str(gpu.index) == name or (not name.isdigit() and gpu.uuid.startswith(name))]
        if not found:
            break
        visible += found[:1]
    return visible
