"""The facts about a machine that the checks use, read lazily from this machine, or from a file.

A file (`agent-rl doctor --save-machine FILE`) contains the facts about another machine, such as a compute node whose
runs are prepared without a GPU. The file contains every fact, so no fact is read from this machine.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from agent_rl.errors import ConfigError
from agent_rl.launch.cluster import Nodes, interfaces
from agent_rl.launch.command import has_accelerator
from agent_rl.launch.environment import RUNTIME, cuda_home, gpu_environment, missing_parts
from agent_rl.settings.secrets import is_secret_variable

HUB_S = 3.0
"""Seconds within which the Hub must answer."""
ASK = "import sys, httpx; httpx.head(sys.argv[1], verify=False)"
LIBRARIES = ("libnuma.so.1", RUNTIME)
"""Libraries that are missing from the stack's wheels, or that the loader does not find without help."""
NVIDIA_SMI_S = 10.0
COMPILERS_S = 20.0
KERNEL = """#include <cuda_runtime.h>
#include <nv/target>
__global__ void kernel() {} int run() { kernel<<<1, 1>>>(); return cudaGetLastError(); }
"""
EXTENSION = """#include <Python.h>
#include <stddef.h>
const char *version(void) { return Py_GetVersion(); }
"""
QUERY = "index,uuid,name,memory.total,memory.used,driver_version,compute_cap"


@dataclass(frozen=True)
class Gpu:
    """An NVIDIA GPU, with its memory in MiB."""

    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int
    driver: str
    capability: str
    """Compute capability, for example `9.0`."""


class Machine:
    """A machine. Sizes are in bytes.

    Args:
        environ: the environment that a run on the machine would inherit.
        facts: all `FACTS` about another machine; None means this machine.
    """

    gpus = cached_property(lambda machine: read_gpus(machine.environ))
    """The GPUs that `CUDA_VISIBLE_DEVICES` allows."""
    device_file = cached_property(lambda machine: has_accelerator())
    """Whether there is a device file of an accelerator."""
    glibc = cached_property(lambda machine: platform.libc_ver()[1] if platform.libc_ver()[0] == "glibc" else "")
    """The version of glibc, or "" for another C library."""
    cores = cached_property(lambda machine: len(os.sched_getaffinity(0)))
    """Cores that this process may use."""
    memory = cached_property(lambda machine: _available())
    """Memory that a new process can use, in bytes."""
    shared_memory = cached_property(lambda machine: _free(Path("/dev/shm")))
    """Free bytes in `/dev/shm`, or None if it does not exist."""
    disk = cached_property(lambda machine: _free(Path.cwd()))
    """Free bytes on the disk of the working directory; `free_disk` takes another folder."""
    libraries = cached_property(lambda machine: [name for name in LIBRARIES if _loads(name, machine.environ)])
    """The `LIBRARIES` that the loader finds with the launcher's environment."""
    cuda_home = cached_property(lambda machine: str(cuda_home(machine.environ) or ""))
    """The folder of the CUDA toolkit, or "" if there is no toolkit."""
    missing_parts = cached_property(lambda machine: missing_parts(Path(machine.cuda_home)) if machine.cuda_home else [])
    """The parts that the toolkit lacks."""
    compiled = cached_property(
        lambda machine: try_compilers(machine.cuda_home, machine.environ) if machine.gpus else {}
    )
    """The error of each test of a compiler or ninja, or "" for a test that passes; no tests are run without a GPU."""
    interfaces = cached_property(lambda machine: interfaces())
    """Network interfaces with an address that another node could use."""
    hub_answers = cached_property(lambda machine: _answers(machine.environ))
    """Whether models can be downloaded."""
    torch_cuda = cached_property(lambda machine: _cuda_of_torch())
    """The CUDA version for which torch was built, or None for a CPU build, or if torch is not installed."""
    packages = cached_property(lambda machine: _installed())
    """The version of every installed package, by normalized name."""

    def __init__(self, environ: Mapping[str, str], facts: Mapping[str, Any] | None = None) -> None:
        self.environ, self.is_this_one = environ, facts is None
        if facts is not None:
            gpus = _visible([Gpu(**gpu) for gpu in facts["gpus"]], environ.get("CUDA_VISIBLE_DEVICES"))
            vars(self).update({**facts, "gpus": gpus})  # fills the cached properties, which then return these facts

    @classmethod
    def from_file(cls, file: Path) -> Machine:
        """Load the machine that a file describes, with the environment stored in the file.

        Raises:
            ConfigError: the file is not valid, or a fact is missing.
        """
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            return cls(facts["environ"], {name: facts[name] for name in FACTS})
        except (OSError, ValueError, LookupError, TypeError) as error:
            problem = f"the file does not contain the facts about a machine: {error!r}"
            remedy = "Write the file on the machine with: agent-rl doctor --save-machine FILE"
            raise ConfigError(str(file), problem, remedy) from error

    def to_dict(self) -> dict[str, Any]:
        """Return all facts, and the relevant variables without secrets and with SLURM's head, as JSON data."""
        matter = [name for name in sorted(self.environ) if _MATTERS.match(name) and not is_secret_variable(name)]
        variables = {name: self.environ[name] for name in matter}
        with suppress(ConfigError):  # the doctor itself reports invalid variables
            if nodes := Nodes.from_environment(self.environ):
                variables["MASTER_ADDR"] = nodes.head
        facts = {name: getattr(self, name) for name in FACTS}
        return {"environ": variables, **facts, "gpus": [asdict(gpu) for gpu in self.gpus]}

    def version(self, package: str) -> str | None:
        """Return the installed version of a package, or None if it is not installed."""
        return self.packages.get(canonicalize_name(package))

    def free_disk(self, folder: Path) -> int:
        """Return the free bytes on the disk of an existing folder."""
        return shutil.disk_usage(folder).free if self.is_this_one else int(self.disk or 0)


FACTS = tuple(name for name, value in vars(Machine).items() if isinstance(value, cached_property))
"""The names of all facts, as written to a file."""

_MATTERS = re.compile(
    r"(VERL_|CUDA_|HF_|TRANSFORMERS_OFFLINE|PYTORCH_|SGLANG_|NCCL_|GLOO_|RAY_ADDRESS|OMP_NUM_THREADS|"
    r"(PET_)?(NNODES|NODE_RANK|MASTER_)|SLURM_(NNODES|NODEID|LOCALID|STEP_NUM_NODES|(STEP|JOB)_NODELIST))"
)


def read_gpus(environ: Mapping[str, str]) -> list[Gpu]:
    """Read the GPUs that `CUDA_VISIBLE_DEVICES` allows from `nvidia-smi`; unknown memory ("[N/A]") is 0.

    No library is loaded, and no GPU memory is used. The list is empty if `nvidia-smi` does not work.
    """
    program = shutil.which("nvidia-smi", path=environ.get("PATH")) or ""
    command = [program, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=NVIDIA_SMI_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    gpus = []
    for line in done.stdout.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 7 and parts[0].isdigit():
            index, total, used = (int(part) if part.isdigit() else 0 for part in (parts[0], parts[3], parts[4]))
            gpus.append(Gpu(index, parts[1], parts[2], total, used, *parts[5:]))
    return _visible(gpus, environ.get("CUDA_VISIBLE_DEVICES"))


def _visible(gpus: list[Gpu], chosen: str | None) -> list[Gpu]:
    """Return the GPUs that `CUDA_VISIBLE_DEVICES` names by index or start of the UUID; an unknown GPU ends the list."""
    if chosen is None:
        return gpus
    visible: list[Gpu] = []
    for name in filter(None, (part.strip() for part in chosen.split(","))):
        matches = [gpu for gpu in gpus if str(gpu.index) == name or (not name.isdigit() and gpu.uuid.startswith(name))]
        if not matches:
            break
        visible += matches[:1]
    return visible


def _free(path: Path) -> int | None:
    return shutil.disk_usage(path).free if path.is_dir() else None


def _available() -> int:
    """Return the bytes of memory that a new process can use on the machine, within the container's limit."""
    import psutil

    available = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        cached = re.search(r"^inactive_file (\d+)", (group / "memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):  # this is not a container, or the limit is "max", which means none
        return available
    return min(available, limit - used + int(cached[1] if cached else 0))


def _loads(name: str, environ: Mapping[str, str]) -> bool:
    """Whether a library is in a folder of `LD_LIBRARY_PATH`, or the loader finds it elsewhere."""
    folders = {**environ, **gpu_environment(environ)}.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if any((Path(folder) / name).is_file() for folder in filter(None, folders)):
        return True
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _answers(environ: Mapping[str, str]) -> bool:
    """Whether the Hub answers, through a proxy if configured; a child process asks, so that a time limit can end it."""
    command = [sys.executable, "-c", ASK, environ.get("HF_ENDPOINT") or "https://huggingface.co"]
    try:
        return not subprocess.run(command, env=environ, capture_output=True, timeout=HUB_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return False


def _cuda_of_torch() -> str | None:
    """Return the CUDA version that torch was built for, without importing torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    match = re.search(r"^cuda\b[^=]*= *['\"]([\d.]+)", text, re.MULTILINE)
    return match[1] if match else None


def _installed() -> dict[str, str]:
    versions: dict[str, str] = {}
    for package in metadata.distributions():
        versions.setdefault(canonicalize_name(package.metadata["Name"]), package.version)
    return dict(sorted(versions.items()))


def try_compilers(home: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Compile and link a few lines in the way that the engine builds its kernels and Triton builds its launcher.

    Returns:
        The error or "" for each test ("ninja", "Python.h", and "CUDA" with a toolkit), within `COMPILERS_S` seconds.
    """
    ends, variables = time.monotonic() + COMPILERS_S, {**environ, **gpu_environment(environ)}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cu").write_text(KERNEL)
        (Path(folder) / "extension.c").write_text(EXTENSION)
        nvcc = [f"{home}/bin/nvcc", "-std=c++17", "-Xcompiler", "-fPIC", "-c", "kernel.cu", "-o", "kernel.o"]
        link = ["c++", "-shared", "kernel.o", f"-L{home}/lib64", "-lcudart", "-o", "kernel.so"]
        compiler = environ.get("CC") or shutil.which("gcc", path=environ.get("PATH")) or "clang"  # Triton's choice
        include = f"-I{sysconfig.get_path('include')}"
        extension = [compiler, "-shared", "-fPIC", include, "extension.c", "-o", "extension.so"]
        commands = {"Python.h": [extension], **({"CUDA": [nvcc, link]} if home else {})}
        path = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", "")])
        ninja = "" if shutil.which("ninja", path=path) else "ninja is not installed (pip install ninja)"
        return {"ninja": ninja} | {name: _failure(each, folder, variables, ends) for name, each in commands.items()}


def _failure(commands: list[list[str]], folder: str, environ: Mapping[str, str], ends: float) -> str:
    for command in commands:
        try:
            left = max(0.1, ends - time.monotonic())
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return f"{os.path.basename(command[0])} was stopped after {COMPILERS_S:.0f} s"
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"{command[0]} exited with status {done.returncode}"]
            return next((line for line in lines if "error" in line or "cannot find" in line), lines[-1]).strip()
    return ""
