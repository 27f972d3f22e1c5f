"""What the processes of a run on NVIDIA GPUs need in their environment, and its wheels do not say.

- `LD_LIBRARY_PATH` has the folder of CUDA's runtime library. SGLang preloads torch_memory_saver into its processes, and
  the loader looks for that library before Python runs (https://github.com/sgl-project/sglang/issues/36533).
- `CUDA_HOME` is a toolkit with which SGLang builds kernels when they are first used, whatever its backends are. Its
  build files have `-L$CUDA_HOME/lib64 -lcudart`, so NVIDIA's wheels, which have neither, are not one.
- `PATH` begins with the environment's `bin`, where `ninja` is, which builds them.

What the user has set stays; nothing is loaded here.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CUDA", "RUNTIME", "cuda_home", "gpu_environment", "missing_parts", "runtime_folder"]

CUDA = 13
"""The major version of CUDA that the engine's wheels are built for."""
RUNTIME = f"libcudart.so.{CUDA}"
TOOLKITS = (f"/usr/local/cuda-{CUDA}*", "/usr/local/cuda")
VERSION = "include/cuda_runtime_api.h"
PARTS = ("bin/nvcc", "lib64/libcudart.so", "include/cuda_runtime.h", VERSION)
TARGET_HEADER = ("include/nv/target", "include/cccl/nv/target")
"""One of these; CUDA 13 has the second."""


def gpu_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that have to be set or changed; empty: there is nothing to do."""
    wanted = {}
    binaries, paths = str(Path(sys.executable).parent), environ.get("PATH", "").split(os.pathsep)
    if binaries not in paths:
        wanted["PATH"] = os.pathsep.join([binaries, *filter(None, paths)])
    folder, libraries = runtime_folder(), environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if folder is not None and str(folder) not in libraries:
        wanted["LD_LIBRARY_PATH"] = os.pathsep.join([str(folder), *filter(None, libraries)])
    if not (environ.get("CUDA_HOME") or environ.get("CUDA_PATH")) and (home := cuda_home(environ)) is not None:
        wanted["CUDA_HOME"] = str(home)
    return wanted


def runtime_folder() -> Path | None:
    """The folder of CUDA's runtime library in the wheels beside torch; None: no wheel has it."""
    return next((path.parent for folder in _wheels() for path in folder.glob(f"*/lib/{RUNTIME}")), None)


def cuda_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The toolkit: the user's, whatever it lacks, else a complete one, in the usual folder or on the path."""
    if named := environ.get("CUDA_HOME") or environ.get("CUDA_PATH"):
        return Path(named)
    folders = [folder for pattern in TOOLKITS for folder in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)]
    if program := shutil.which("nvcc", path=environ.get("PATH")):
        folders.append(Path(program).resolve().parents[1])
    return next((folder for folder in folders if not missing_parts(folder)), None)


def missing_parts(home: Path) -> list[str]:
    """What a toolkit lacks of what kernels are compiled and linked with; empty: nothing."""
    missing = [name for name in PARTS if not (home / name).is_file()]
    if not any((home / name).is_file() for name in TARGET_HEADER):
        missing.append(TARGET_HEADER[0])
    if VERSION not in missing:
        version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", (home / VERSION).read_text(errors="replace"))
        major = int(version[1]) // 1000 if version else None
        missing += [] if major == CUDA else [f"version {CUDA} (it is {major})"]
    return missing


def _wheels() -> list[Path]:
    """The folders of NVIDIA's wheels."""
    spec = importlib.util.find_spec("nvidia")
    return [Path(each) for each in (spec.submodule_search_locations or ())] if spec else []
