"""Compiles and links a few lines in the way that the engine builds its kernels and Triton builds its launcher."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from agent_rl.launch.environment import gpu_environment

__all__ = ["try_compilers"]

LIMIT_S = 20.0
KERNEL = """#include <cuda_runtime.h>
#include <nv/target>
__global__ void kernel() {} int run() { kernel<<<1, 1>>>(); return cudaGetLastError(); }
"""
EXTENSION = """#include <Python.h>
#include <stddef.h>
const char *version(void) { return Py_GetVersion(); }
"""


def try_compilers(cuda_home: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return why "ninja", "Python.h" and, with a toolkit, "CUDA" fail, or ""; takes at most `LIMIT_S` seconds."""
    ends, variables = time.monotonic() + LIMIT_S, {**environ, **gpu_environment(environ)}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.cu").write_text(KERNEL)
        (Path(folder) / "extension.c").write_text(EXTENSION)
        nvcc = [f"{cuda_home}/bin/nvcc", "-std=c++17", "-Xcompiler", "-fPIC", "-c", "kernel.cu", "-o", "kernel.o"]
        link = ["c++", "-shared", "kernel.o", f"-L{cuda_home}/lib64", "-lcudart", "-o", "kernel.so"]
        compiler = environ.get("CC") or shutil.which("gcc", path=environ.get("PATH")) or "clang"  # Triton's choice
        include = f"-I{sysconfig.get_path('include')}"
        extension = [compiler, "-shared", "-fPIC", include, "extension.c", "-o", "extension.so"]
        commands = {"Python.h": [extension], **({"CUDA": [nvcc, link]} if cuda_home else {})}
        path = os.pathsep.join([str(Path(sys.executable).parent), environ.get("PATH", "")])
        ninja = "" if shutil.which("ninja", path=path) else "it is not installed (pip install ninja)"
        return {"ninja": ninja} | {name: _failure(each, folder, variables, ends) for name, each in commands.items()}


def _failure(commands: list[list[str]], folder: str, environ: Mapping[str, str], ends: float) -> str:
    for command in commands:
        try:
            left = max(0.1, ends - time.monotonic())
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return f"{os.path.basename(command[0])} was stopped after {LIMIT_S:.0f} s"
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"{command[0]} exited with status {done.returncode}"]
            return next((line for line in lines if "error" in line or "cannot find" in line), lines[-1]).strip()
    return ""
