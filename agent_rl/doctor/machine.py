"""The facts of a machine that the checks compare: of this one, each read when it is first asked for, or from a file.

A file (`agent-rl doctor --save-machine FILE`) has those of another machine, such as a compute node whose runs are
prepared where there is no GPU. It has every fact, so that nothing of this machine is mixed in.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from packaging.utils import canonicalize_name

from agent_rl.doctor.compiling import try_compilers
from agent_rl.doctor.devices import Gpu, read_gpus, visible
from agent_rl.errors import ConfigError
from agent_rl.launch.cluster import Nodes, interfaces
from agent_rl.launch.command import has_accelerator
from agent_rl.launch.gpu_environment import RUNTIME, cuda_home, gpu_environment, missing_parts

__all__ = ["FACTS", "Machine"]

HUB_S = 3.0
"""Seconds within which the hub must answer."""
ASK = """
import ssl, sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], context=ssl._create_unverified_context())
except urllib.error.HTTPError:  # an answer
    pass
"""
LIBRARIES = ("libnuma.so.1", RUNTIME)
"""Libraries that the stack's wheels do not bring, or that the loader does not find by itself."""

Fact = TypeVar("Fact")


class Machine:
    """One machine, with the environment that a run on it would inherit. Sizes are in bytes."""

    def __init__(self, environ: Mapping[str, str], given: Mapping[str, Any] | None = None) -> None:
        self.environ, self.given = environ, given

    @classmethod
    def from_file(cls, file: Path) -> Machine:
        """The machine that a file describes, with the environment that it names.

        Raises:
            ConfigError: for a file that is none, and a fact that is missing or unknown.
        """
        remedy = "Write it on the machine with: agent-rl doctor --save-machine FILE"
        try:
            given = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(str(file), f"no facts of a machine: {error}", remedy) from error
        names = {"environ", *FACTS}
        if not isinstance(given, dict) or given.keys() != names:
            wrong = sorted(given.keys() ^ names) if isinstance(given, dict) else ["no mapping"]
            raise ConfigError(str(file), f"missing or unknown: {', '.join(wrong)}", remedy)
        return cls(given["environ"], given)

    def to_dict(self) -> dict[str, Any]:
        """All facts, and the variables that matter, with the address that SLURM's program gives; JSON data."""
        named = {name: value for name, value in sorted(self.environ.items()) if _MATTERS.match(name)}
        with suppress(ConfigError):  # the doctor says what is wrong, from the variables
            if nodes := Nodes.from_environment(self.environ):
                named["MASTER_ADDR"] = nodes.head
        facts = {name: getattr(self, name) for name in FACTS}
        return {"environ": named, **facts, "gpus": [asdict(gpu) for gpu in self.gpus]}

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs that `CUDA_VISIBLE_DEVICES` allows."""
        if self.given is None:
            return read_gpus(self.environ)
        return visible([Gpu(**each) for each in self.given["gpus"]], self.environ.get("CUDA_VISIBLE_DEVICES"))

    @cached_property
    def device_file(self) -> bool:
        """Whether there is a device file of an accelerator."""
        return self._fact("device_file", has_accelerator)

    @cached_property
    def python(self) -> str:
        """The interpreter's version."""
        return self._fact("python", platform.python_version)

    @cached_property
    def glibc(self) -> str:
        """The version of the C library; empty: another one."""
        return self._fact("glibc", lambda: platform.libc_ver()[1] if platform.libc_ver()[0] == "glibc" else "")

    @cached_property
    def cores(self) -> int:
        """Cores that this process may use."""
        return self._fact("cores", lambda: len(os.sched_getaffinity(0)))

    @cached_property
    def memory(self) -> int:
        """Memory that a new process may take."""
        return self._fact("memory", _available)

    @cached_property
    def shared_memory(self) -> int | None:
        """Free in `/dev/shm`; None: there is none."""
        return self._fact("shared_memory", lambda: _free(Path("/dev/shm")))

    @cached_property
    def disk(self) -> int | None:
        """Free on the disk of the working directory; `free_disk` asks for another folder."""
        return self._fact("disk", lambda: _free(Path.cwd()))

    @cached_property
    def open_files(self) -> int:
        """The limit on open files of a process; Ray raises it up to this. -1: none."""
        return self._fact("open_files", lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[1])

    @cached_property
    def libraries(self) -> list[str]:
        """Those of `LIBRARIES` that the loader finds, with what the launcher sets."""
        return self._fact("libraries", lambda: [name for name in LIBRARIES if self._loads(name)])

    @cached_property
    def cuda_home(self) -> str:
        """The CUDA toolkit; empty: none."""
        return self._fact("cuda_home", lambda: str(cuda_home(self.environ) or ""))

    @cached_property
    def missing_parts(self) -> list[str]:
        """What the toolkit lacks."""
        return self._fact("missing_parts", lambda: missing_parts(Path(self.cuda_home)) if self.cuda_home else [])

    @cached_property
    def compiled(self) -> dict[str, str]:
        """Why three lines with CUDA, and with `Python.h`, do not compile or link, empty: they do; tried with a GPU."""
        return self._fact("compiled", lambda: try_compilers(self.cuda_home, self.environ) if self.gpus else {})

    @cached_property
    def interfaces(self) -> list[str]:
        """Interfaces with an address that another node could use."""
        return self._fact("interfaces", interfaces)

    @cached_property
    def ninja(self) -> str:
        """The program `ninja`, on the path or in the environment's `bin`; empty: none."""
        path = os.pathsep.join([str(Path(sys.executable).parent), self.environ.get("PATH", "")])
        return self._fact("ninja", lambda: shutil.which("ninja", path=path) or "")

    @cached_property
    def hub_answers(self) -> bool:
        """Whether models can be downloaded."""
        return self._fact("hub_answers", lambda: _answers(self.environ))

    @cached_property
    def torch_cuda(self) -> str | None:
        """The CUDA version that torch was built for; None: for none, or there is no torch."""
        return self._fact("torch_cuda", _cuda_of_torch)

    @cached_property
    def packages(self) -> dict[str, str]:
        """The version of every installed package, by its normalised name."""
        return self._fact("packages", _installed)

    def version(self, package: str) -> str | None:
        """The installed version of a package; None: it is not installed."""
        if self.given is not None:
            return self.packages.get(canonicalize_name(package))
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return None

    def free_disk(self, folder: Path) -> int:
        """Free on the disk of a folder that exists."""
        return int(self.given["disk"]) if self.given is not None else shutil.disk_usage(folder).free

    def _fact(self, name: str, read: Callable[[], Fact]) -> Fact:
        if self.given is None:
            return read()
        given: Fact = self.given[name]
        return given

    def _loads(self, name: str) -> bool:
        """Whether a library is in a folder of `LD_LIBRARY_PATH`, or the loader knows it."""
        folders = {**self.environ, **gpu_environment(self.environ)}.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        if any((Path(folder) / name).is_file() for folder in filter(None, folders)):
            return True
        try:
            ctypes.CDLL(name)
        except OSError:
            return False
        return True


FACTS = tuple(name for name, value in vars(Machine).items() if isinstance(value, cached_property))
"""The names of all facts, as a file has them."""

_MATTERS = re.compile(
    r"(VERL_|CUDA_|HF_|TRANSFORMERS_OFFLINE|PYTORCH_|SGLANG_|NCCL_|GLOO_|RAY_ADDRESS|OMP_NUM_THREADS|"
    r"(PET_)?(NNODES|NODE_RANK|MASTER_)|SLURM_(NNODES|NODEID|LOCALID|STEP_NUM_NODES|(STEP|JOB)_NODELIST))"
)


def _free(path: Path) -> int | None:
    return shutil.disk_usage(path).free if path.is_dir() else None


def _available() -> int:
    """Bytes of memory that a new process may take: free on the machine, or left by the container's limit."""
    import psutil

    available = int(psutil.virtual_memory().available)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        cached = re.search(r"^inactive_file (\d+)", Path("/sys/fs/cgroup/memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return available
    return available if limit == "max" else min(available, int(limit) - used + int(cached[1] if cached else 0))


def _answers(environ: Mapping[str, str]) -> bool:
    """Whether the hub answers, through a proxy if there is one; a process can be ended while it looks up a name."""
    command = [sys.executable, "-c", ASK, environ.get("HF_ENDPOINT") or "https://huggingface.co"]
    try:
        return not subprocess.run(command, env=environ, capture_output=True, timeout=HUB_S, check=False).returncode
    except subprocess.TimeoutExpired:
        return False


def _cuda_of_torch() -> str | None:
    """The CUDA version that torch was built for, read without importing torch."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=]*= *['\"]([\d.]+)", text, re.MULTILINE)
    return found[1] if found else None


def _installed() -> dict[str, str]:
    found: dict[str, str] = {}
    for each in metadata.distributions():
        found.setdefault(canonicalize_name(each.metadata["Name"]), each.version)
    return dict(sorted(found.items()))
