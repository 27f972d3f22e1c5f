"""A run's environment: variables that its processes need, and folders to which they must be able to write.

A run on GPUs needs these variables, which NVIDIA's wheels do not set:

- `LD_LIBRARY_PATH` contains the folder of CUDA's runtime library. SGLang preloads torch_memory_saver, for which the
  loader needs CUDA's runtime library before Python runs (https://github.com/sgl-project/sglang/issues/36533).
- `CUDA_HOME` is a toolkit with which SGLang builds kernels when they are first used, regardless of its backends.
  SGLang links with `-L$CUDA_HOME/lib64 -lcudart`, so NVIDIA's wheels, which have no `lib64`, are not a toolkit.
- `PATH` starts with the environment's `bin`, which contains `ninja`, the program that builds the kernels.

A batch system's TMPDIR is often too long for Ray's sockets, and a container's user may have no home directory. The
functions of this module keep the user's settings and load no library.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from agent_rl.errors import ConfigError

CUDA = 13
"""The major version of CUDA for which the engine's wheels are built."""
RUNTIME = f"libcudart.so.{CUDA}"
TOOLKITS = (f"/usr/local/cuda-{CUDA}*", "/usr/local/cuda")
VERSION = "include/cuda_runtime_api.h"
PARTS = ("bin/nvcc", "lib64/libcudart.so", "include/cuda_runtime.h", VERSION)
TARGET_HEADER = ("include/nv/target", "include/cccl/nv/target")
"""A toolkit contains one of these headers; CUDA 13 contains the second."""
SOCKET = "/ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store.1"
"""Path of a socket that Ray creates under `RAY_TMPDIR` or `TMPDIR`; Linux allows socket paths of up to 107 bytes."""
LONGEST = 107 - len(SOCKET)
"""Maximum length in bytes of `RAY_TMPDIR`, for Ray's sockets."""
LONGEST_OF_ALL = 107 - len("/pymp-00000000/listener-00000000")
"""Maximum length in bytes of `TMPDIR`, for the sockets of SGLang and Python."""
SHORT = "/tmp"
"""The folder that replaces a `TMPDIR` that is too long."""


def joins_ray(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the trainer joins a running Ray cluster instead of starting one."""
    return environ.get("RAY_ADDRESS", "local") not in ("", "local")


def gpu_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to set or change for a run on GPUs, or {} if all of them are correct."""
    variables = {}
    binaries, paths = str(Path(sys.executable).parent), environ.get("PATH", "").split(os.pathsep)
    if binaries not in paths:
        variables["PATH"] = os.pathsep.join([binaries, *filter(None, paths)])
    runtime = next((file for wheel in _wheels() for file in wheel.glob(f"*/lib/{RUNTIME}")), None)
    libraries = environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if runtime is not None and str(runtime.parent) not in libraries:
        variables["LD_LIBRARY_PATH"] = os.pathsep.join([str(runtime.parent), *filter(None, libraries)])
    if not (environ.get("CUDA_HOME") or environ.get("CUDA_PATH")) and (home := cuda_home(environ)) is not None:
        variables["CUDA_HOME"] = str(home)
    return variables


def cuda_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the user's toolkit, even if incomplete; if none is set, a complete one in the usual folders or `PATH`."""
    if configured := environ.get("CUDA_HOME") or environ.get("CUDA_PATH"):
        return Path(configured)
    folders = [folder for pattern in TOOLKITS for folder in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)]
    if program := shutil.which("nvcc", path=environ.get("PATH")):
        folders.append(Path(program).resolve().parents[1])
    return next((folder for folder in folders if not missing_parts(folder)), None)


def missing_parts(home: Path) -> list[str]:
    """Return the parts that a toolkit lacks for compiling and linking kernels."""
    missing = [name for name in PARTS if not (home / name).is_file()]
    if not any((home / name).is_file() for name in TARGET_HEADER):
        missing.append(TARGET_HEADER[0])
    if VERSION not in missing:
        version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", (home / VERSION).read_text(errors="replace"))
        major = int(version[1]) // 1000 if version else None
        missing += [] if major == CUDA else [f"version {CUDA} (it is {major})"]
    return missing


def _wheels() -> list[Path]:
    """Return the folders of NVIDIA's wheels."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(each) for each in (spec.submodule_search_locations or ())] if spec else []


def temporary_files(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `RAY_TMPDIR` if `TMPDIR` is too long for Ray's sockets and the user has not set another folder.

    Raises:
        ConfigError: the path of a folder that the user has set is too long.
    """
    if joins_ray(environ):
        return {}
    configured, usual = environ.get("RAY_TMPDIR"), environ.get("TMPDIR")
    for variable, folder, most in (("RAY_TMPDIR", configured, LONGEST), ("TMPDIR", usual, LONGEST_OF_ALL)):
        if len(os.fsencode(folder or "")) > most:
            problem = f"{folder!r} is too long: it contains a run's sockets, whose paths are limited to 107 bytes"
            raise ConfigError(variable, problem, f"Choose a path of at most {most} bytes, for example {SHORT}")
    folder = ray_folder(environ)
    return {} if folder == (configured or usual or SHORT) else {"RAY_TMPDIR": folder}


def ray_folder(environ: Mapping[str, str]) -> str:
    """Return the temporary folder of the run's own Ray: `TMPDIR` unless it is too long."""
    usual = environ.get("TMPDIR") or SHORT
    return environ.get("RAY_TMPDIR") or (usual if len(os.fsencode(usual)) <= LONGEST else SHORT)


def require_home(environ: Mapping[str, str] = os.environ) -> None:
    """Reject a home directory that is not writable, unless Ray's token and the caches are elsewhere.

    Raises:
        ConfigError: the home directory is needed but not writable.
    """
    has_token = joins_ray(environ) or any(environ.get(f"RAY_AUTH_{name}") for name in ("TOKEN", "TOKEN_PATH", "MODE"))
    if has_token and environ.get("HF_HOME"):
        return
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    existing = next(folder for folder in (home, *home.parents) if os.path.exists(folder))
    if not os.access(existing, os.W_OK | os.X_OK):
        problem = f"nothing can be written to {str(home)!r}, where Ray stores a token and datasets caches rows"
        raise ConfigError("HOME", problem, "Set HOME to one of your folders, for example HOME=$PWD")
