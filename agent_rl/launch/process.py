"""Runs the trainer as a child process: follows its metrics, explains its failure, and leaves nothing behind."""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from agent_rl.cpu.fork_server import fork_server
from agent_rl.errors import AgentRLError
from agent_rl.launch.output import failure
from agent_rl.launch.stopping import Aborted, StoppedRun, StopRequest
from agent_rl.settings.old_keys import RUN
from agent_rl.work.parts import whole_lines

__all__ = [
    "Tail",
    "TrainerError",
    "begin_child",
    "follow",
    "logger_environment",
    "process_tree",
    "remove_unused",
    "run_trainer",
    "shared_files",
    "stop",
]

SHARED_MEMORY = Path("/dev/shm")
NEW_METRICS = "metrics.new.jsonl"
"""File that verl writes to, and empties at each start."""
TRAINED = "training/global_step"
"""A metric of every step that is not only a validation."""
LEFT_BEHIND = ("sem.mp-*", "sglang_loads_*")
"""Files in shared memory of killed processes: those of Python's multiprocessing, and of SGLang 0.5.13."""
POLL_S = 0.5
STOP_S = 20.0
"""Seconds between SIGTERM and SIGKILL."""


class TrainerError(AgentRLError):
    """The trainer ended with an error; the message is its cause.

    Args:
        text: the message.
        status: the trainer's exit status, negative for a signal.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status if status > 0 else 128 - status
        """What this process exits with."""


def _ignore(*_: object) -> None:
    """A callback that does nothing."""


def run_trainer(
    command: Sequence[str],
    folder: str | os.PathLike[str],
    *,
    on_metrics: Callable[[int, dict[str, Any]], None] = _ignore,
    on_output: Callable[[str], None] = _ignore,
    environ: Mapping[str, str] = os.environ,
    watch: Callable[[], None] = _ignore,
    stopping: StopRequest | None = None,
    checkpoints: str | os.PathLike[str] | None = None,
) -> StoppedRun | None:
    """Run the trainer as a child that cannot outlive this process, in a session of its own: Ctrl-C is for us.

    Args:
        command: from `trainer_command`; with `trainer.logger` containing `file`, metrics are followed.
        folder: gets `train.log` (all output), `metrics.jsonl` (a line for each step) and `tensorboard/`; what an
            earlier start has written to the first two stays, but for the metrics of steps that are trained again.
        on_metrics: called with step and metrics as soon as a step is logged.
        on_output: called with each line of output.
        environ: of the trainer.
        watch: called again and again; an exception that it raises ends the trainer.
        stopping: by which the run can be asked to end early.
        checkpoints: where the trainer saves them, if that is not below the folder.

    Returns:
        Where the run has ended, if it has ended early because it was asked to.

    Raises:
        TrainerError: with the cause, when the trainer fails; the log keeps everything.
    """
    out = Path(folder).resolve()
    out.mkdir(parents=True, exist_ok=True)
    log, metrics = out / "train.log", out / NEW_METRICS
    metrics.unlink(missing_ok=True)
    before = shared_files()
    try:
        with ExitStack() as stack:
            output = stack.enter_context(open(log, "ab"))
            start = output.tell()
            files = [Tail(log, start, on_output), Tail(metrics, 0, _kept(metrics, on_metrics))]
            env = {**environ, **logger_environment(out, environ)}
            child, _ = stack.enter_context(process_tree(command, env, output, RUN))
            try:
                follow(child, files, watch)
            except Aborted as error:
                if stopping:
                    stopping.on_abort(error.by)
                raise
    finally:
        metrics.unlink(missing_ok=True)
        remove_unused(shared_files() - before)
    if child.returncode:
        written = [out, *([] if checkpoints is None else [Path(checkpoints)])]
        raise TrainerError(failure(log, start, child.returncode, written), child.returncode)
    return stopping.answer() if stopping else None


def logger_environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that tell verl's loggers where to write."""
    tensorboard = environ.get("TENSORBOARD_DIR") or str(folder / "tensorboard")
    return {"VERL_FILE_LOGGER_PATH": str(folder / NEW_METRICS), "TENSORBOARD_DIR": tensorboard}


@contextmanager
def process_tree(
    command: Sequence[str], env: Mapping[str, str], output: IO[bytes], variable: str
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """A child in a session of its own (Ctrl-C is for us), which ends with the block, with all that it has started.

    Args:
        command: the child's.
        env: the child's environment.
        output: gets what it prints.
        variable: of the environment, by which its processes are found.

    Returns:
        The child, and the variables of the server that forks its Ray workers on a CPU.
    """
    mark = secrets.token_hex(16)
    try:
        with fork_server({**env, variable: mark}, output) as forks:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**env, variable: mark, **forks}, start_new_session=True, preexec_fn=begin_child,
            )  # fmt: skip
            try:
                yield child, forks
            finally:
                stop(child)
    finally:
        psutil.wait_procs(_processes_with(variable, mark), STOP_S)
        for process in _processes_with(variable, mark):
            process.kill()


def stop(child: subprocess.Popen[bytes]) -> None:
    """End the child; Ray ends its own processes when their driver is gone."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def follow(child: subprocess.Popen[bytes], files: Sequence[Tail], watch: Callable[[], None] = _ignore) -> None:
    """Wait for the child, hand on what it writes to files, and call `watch` in between."""
    while True:
        has_ended = child.poll() is not None
        for file in files:
            file.read()
        if has_ended:
            return
        watch()
        time.sleep(POLL_S)


def begin_child() -> None:
    """For `preexec_fn`: the child dies with its parent, and SIGQUIT ends it.

    A shell lets its background jobs ignore SIGQUIT, and they leave that to their children. But SGLang's processes tell
    their server by it that they have failed: a run would wait for a dead engine forever.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # Linux's PR_SET_PDEATHSIG
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def shared_files() -> set[Path]:
    """The files in shared memory that killed processes may have left behind."""
    return {path for pattern in LEFT_BEHIND for path in SHARED_MEMORY.glob(pattern)}


def remove_unused(candidates: set[Path]) -> None:
    """Remove the files of this user that no process has mapped.

    psutil's `memory_maps` would read `smaps`, for which the kernel walks the page tables of every process.
    """
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # ended meanwhile, or another user's
            mapped |= set(re.findall(rf"{SHARED_MEMORY}/\S+", maps.read_text()))
    for path in candidates:
        if str(path) not in mapped and path.exists() and path.stat().st_uid == os.getuid():
            path.unlink(missing_ok=True)


class Tail:
    """What a file gains, line by line.

    Args:
        path: the file, which may not be there yet.
        offset: bytes of it that are known already.
        on_line: called with each complete line.
    """

    def __init__(self, path: Path, offset: int, on_line: Callable[[str], None]) -> None:
        self._path, self._offset, self._on_line = path, offset, on_line

    def read(self) -> None:
        """Hand on the lines that are complete by now."""
        if self._path.exists():
            for start, line in whole_lines(self._path, self._offset):
                self._offset = start + len(line)
                self._on_line(line.decode(errors="replace").rstrip("\n"))


def _kept(metrics: Path, on_metrics: Callable[[int, dict[str, Any]], None]) -> Callable[[str], None]:
    """What keeps the lines that verl writes to `NEW_METRICS` in `metrics.jsonl`."""
    file, is_first = metrics.with_name("metrics.jsonl"), True

    def keep(line: str) -> None:
        nonlocal is_first
        record = json.loads(line)
        if is_first and file.exists():
            lines = [each for each in file.read_text().splitlines() if _stays(json.loads(each), record)]
            file.write_text("".join(f"{each}\n" for each in lines))
        is_first = False
        with open(file, "a") as appended:
            appended.write(f"{line}\n")
        on_metrics(record["step"], record["data"])

    return keep


def _stays(earlier: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Whether an earlier start's step is not trained again; a start begins with a validation of the step before it."""
    if earlier["step"] != first["step"]:
        return bool(earlier["step"] < first["step"])
    return TRAINED in earlier["data"] and TRAINED not in first["data"]


def _processes_with(variable: str, value: str) -> list[psutil.Process]:
    """All other processes that have inherited an environment variable, and run."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            inherited = process.pid != os.getpid() and process.environ().get(variable) == value
            if inherited and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
