"""Runs the trainer as a child process: follows its metrics, explains its failure, and leaves nothing behind."""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil

from agent_rl.errors import AgentRLError

__all__ = ["TrainerError", "die_with_parent", "end_all", "remove_unused", "run_trainer", "shared_files", "stop"]

SHARED_MEMORY = Path("/dev/shm")
LEFT_BEHIND = ("sem.mp-*", "sglang_loads_*")
"""Files in shared memory of killed processes: those of Python's multiprocessing, and of SGLang 0.5.13."""
POLL_S = 0.5
STOP_S = 20.0
"""Seconds between SIGTERM and SIGKILL."""


class TrainerError(AgentRLError):
    """The trainer ended with an error; the message is its cause."""


def run_trainer(
    command: Sequence[str],
    out_dir: str | os.PathLike[str],
    *,
    on_metrics: Callable[[int, dict[str, Any]], None] | None = None,
    timeout_s: float | None = None,
) -> None:
    """Run the trainer as a child that cannot outlive this process, and that writes below one folder only.

    Args:
        command: from `trainer_command`; with `trainer.logger` containing `file`, metrics are followed.
        out_dir: gets `train.log` (all output), `metrics.jsonl` (a line for each step) and `cache/`.
        on_metrics: called with step and metrics as soon as a step is logged.
        timeout_s: seconds after which the trainer is stopped.

    Raises:
        TrainerError: with the cause, when the trainer fails or runs out of time; the log keeps everything.
    """
    out = Path(out_dir).resolve()
    out.mkdir(parents=True, exist_ok=True)
    log, metrics = out / "train.log", out / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    # Ray's sockets need a short path; temporary files are of no use after the run.
    temporary = tempfile.mkdtemp(prefix="agent_rl_")
    before = shared_files()
    env = {
        **os.environ,
        "HF_HOME": str(out / "cache"),
        "VERL_FILE_LOGGER_PATH": str(metrics),
        "TMPDIR": temporary,
        "RAY_TMPDIR": temporary,
        "RAY_AUTH_TOKEN": secrets.token_hex(32),  # otherwise Ray keeps one in the home directory
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    try:
        with open(log, "wb") as output:
            child = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=env, preexec_fn=die_with_parent
            )
            try:
                _follow(child, metrics, on_metrics, timeout_s)
            finally:
                stop(child)
                end_all("RAY_TMPDIR", temporary)
        if child.returncode:
            raise TrainerError(f"the trainer failed: {_cause(log)} (whole output: {log})")
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        remove_unused(shared_files() - before)


def stop(child: subprocess.Popen[bytes]) -> None:
    """End the child; Ray ends its own processes when their driver is gone."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def end_all(variable: str, value: str) -> None:
    """Wait for all other processes that inherited an environment variable, and kill those that do not end."""
    psutil.wait_procs(_processes_with(variable, value), STOP_S)
    for process in _processes_with(variable, value):
        process.kill()


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the child when its parent dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # Linux's PR_SET_PDEATHSIG


def shared_files() -> set[Path]:
    """The files in shared memory that killed processes may have left behind."""
    return {path for pattern in LEFT_BEHIND for path in SHARED_MEMORY.glob(pattern)}


def remove_unused(candidates: set[Path]) -> None:
    """Remove the files of this user that no process has mapped.

    psutil's `memory_maps` would read `smaps`, for which the kernel walks the page tables of every process.
    """
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped |= set(re.findall(rf"{SHARED_MEMORY}/\S+", maps.read_text()))
        except OSError:  # ended meanwhile, or another user's
            continue
    for path in candidates:
        if str(path) not in mapped and path.exists() and path.stat().st_uid == os.getuid():
            path.unlink(missing_ok=True)


def _follow(
    child: subprocess.Popen[bytes],
    metrics: Path,
    on_metrics: Callable[[int, dict[str, Any]], None] | None,
    timeout_s: float | None,
) -> None:
    """Wait for the child and report each logged step once."""
    started, offset = time.monotonic(), 0
    while True:
        ended = child.poll() is not None
        if metrics.exists():
            with open(metrics, "rb") as file:
                file.seek(offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    offset += len(line)
                    record = json.loads(line)
                    if on_metrics:
                        on_metrics(record["step"], record["data"])
        if ended:
            return
        if timeout_s is not None and time.monotonic() - started > timeout_s:
            raise TrainerError(f"the trainer was stopped after {timeout_s:.0f} seconds")
        time.sleep(POLL_S)


def _processes_with(variable: str, value: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            inherited = process.pid != os.getpid() and process.environ().get(variable) == value
            if inherited and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


_EXCEPTION = re.compile(r"^(?:\x1b\[[0-9;]*m|\([^)]*\)|\s)*([A-Za-z_][\w.]*(?:Error|Exception)): (.+)$")


def _cause(log: Path) -> str:
    """The last exception in the log (not Ray's wrapper, which repeats the remote traceback), else its last lines."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    for line in reversed(lines):
        found = _EXCEPTION.match(line)
        if found and not found[1].startswith("ray.exceptions.RayTaskError"):
            return f"{found[1].rsplit('.', 1)[-1]}: {found[2]}"
    return " / ".join(line for line in lines[-4:] if "HYDRA_FULL_ERROR" not in line)
