"""Executes a benchmark's module where nothing else runs: in namespaces of its own, with empty /tmp and /dev/shm."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

import psutil

from agent_rl.launch.process import begin_child

ROOT = Path(__file__).parents[1]
SHELL = ("sh", "-c", '"$@"; exit $?', "sh")
"""Process 1, which collects orphans."""


def execute_inside(
    module: str, *words: str, given: str = "", has_network: bool = True, limit_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Execute `python -m module words` in new namespaces of processes and mounts, and capture what it prints.

    Args:
        module: the module, which calls `mount_empty`.
        words: its arguments.
        given: its standard input.
        has_network: False for a network of its own, in which even the loopback interface is down.
        limit_s: seconds after which everything inside is killed.
    """
    flags = ("-Urmpf", "--mount-proc", "--kill-child", *(() if has_network else ("-n",)))
    return subprocess.run(
        ["unshare", *flags, *SHELL, sys.executable, "-m", module, *words],
        input=given, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=limit_s, check=False, preexec_fn=begin_child,
    )  # fmt: skip


def mount_empty() -> None:
    """Mount empty file systems at /tmp and /dev/shm of these namespaces; refuse to do so outside of them."""
    if os.getppid() != 1:
        sys.exit("this would hide /tmp of the whole machine: start the module with execute_inside")
    for place in ("/tmp", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", place], check=True)


def other_processes(own: Collection[int] = (), limit_s: float = 0.0) -> list[psutil.Process]:
    """Return the processes of these namespaces but the shell, this one and `own`.

    Args:
        own: process numbers to leave out.
        limit_s: seconds to wait until there is none.
    """
    deadline = time.monotonic() + limit_s
    while (found := [each for each in psutil.process_iter() if _is_other(each, own)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def _is_other(process: psutil.Process, own: Collection[int]) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.pid not in {1, os.getpid(), *own} and process.status() != psutil.STATUS_ZOMBIE
    return False


def names_in(folder: str) -> list[str]:
    """Return the names of the files in a folder, without what differs from run to run."""
    return sorted({re.sub(r"[0-9a-z_]{8}$|[0-9a-f]{8,}|\d+", "#", path.name) for path in Path(folder).iterdir()})
