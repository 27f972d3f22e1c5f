"""Runs the trainer as a child process, follows its metrics, explains its failure, and cleans up after it."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil

from agent_rl.cpu.fork_server import fork_server
from agent_rl.cpu.switch import WEIGHTS
from agent_rl.errors import AgentRLError
from agent_rl.launch.output import failure
from agent_rl.launch.stopping import Aborted, StoppedRun, StopRequest
from agent_rl.settings.old_keys import RUN
from agent_rl.work.parts import append_lines, replace_file, whole_lines

SHARED_MEMORY = Path("/dev/shm")
NEW_METRICS = "metrics.new.jsonl"
"""File to which verl writes its metrics, and which verl empties at each start."""
TRAINED = "training/global_step"
"""A metric that every training step logs, but a validation alone does not."""
LEFT_BEHIND = ("sem.mp-*", "sglang_loads_*")
"""Patterns of shared-memory files left behind when processes of multiprocessing or SGLang 0.5.13 are killed."""
POLL_S = 0.5
STOP_S = 20.0
"""Seconds between SIGTERM and SIGKILL."""


class TrainerError(AgentRLError):
    """The trainer exited with an error; the message describes the cause.

    Args:
        text: the message.
        status: the trainer's exit status, negative for a signal.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status if status > 0 else 128 - status
        """The exit status with which this process should exit."""


def _ignore(*_: object) -> None:
    """Do nothing, as the default callback."""


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
    """Run the trainer as a child that ends with this process, in a separate session, so that Ctrl-C does not reach it.

    Args:
        command: the result of `trainer_command`; metrics are read only if its `trainer.logger` contains `file`.
        folder: gets `train.log` (all output), `metrics.jsonl` (one line per step) and `tensorboard/`; the first
            two keep the lines of earlier starts, except metrics of steps that are trained again.
        on_metrics: called with step and metrics as soon as a step is logged.
        on_output: called with each line of output.
        environ: the trainer's environment.
        watch: called repeatedly; an exception that it raises ends the trainer.
        stopping: requests an early end of the run.
        checkpoints: the trainer's folder for checkpoints, if it is outside the run's folder.

    Returns:
        The last step and checkpoint if the run has ended early on request, otherwise None.

    Raises:
        TrainerError: the trainer failed; the error names the cause, and the log contains the whole output.
    """
    out = Path(folder).resolve()
    out.mkdir(parents=True, exist_ok=True)
    log, metrics = out / "train.log", out / NEW_METRICS
    mark = hashlib.sha256(os.fsencode(out)).hexdigest()[:16]
    _end_processes(RUN, mark)  # ends processes that an earlier start left when its launcher was killed
    Tail(metrics, 0, _kept(metrics, _ignore, on_output)).read()  # reads any metrics that an aborted start left
    metrics.unlink(missing_ok=True)
    before = shared_files()
    try:
        with ExitStack() as stack:
            output = stack.enter_context(open(log, "ab"))
            start = output.tell()
            files = [Tail(log, start, on_output), Tail(metrics, 0, _kept(metrics, on_metrics, on_output))]
            env = {**environ, **logger_environment(out, environ)}
            child, _ = stack.enter_context(process_tree(command, env, output, RUN, mark))
            try:
                follow(child, files, watch)
            except Aborted as error:
                if stopping:
                    stopping.on_abort(error.by)
                raise
        metrics.unlink(missing_ok=True)
    finally:
        remove_unused(shared_files() - before)
    if child.returncode:
        written = [out, *([] if checkpoints is None else [Path(checkpoints)])]
        raise TrainerError(failure(log, start, child.returncode, written), child.returncode)
    return stopping.answer() if stopping else None


def logger_environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that set where verl's loggers write."""
    tensorboard = environ.get("TENSORBOARD_DIR") or str(folder / "tensorboard")
    return {"VERL_FILE_LOGGER_PATH": str(folder / NEW_METRICS), "TENSORBOARD_DIR": tensorboard}


@contextmanager
def process_tree(
    command: Sequence[str], env: Mapping[str, str], output: IO[bytes], variable: str, mark: str | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    """Run a child in a separate session during this block, then stop the child and all processes that it has started.

    Args:
        command: the child's command line.
        env: the child's environment.
        output: receives the child's output.
        variable: environment variable that identifies the child's processes.
        mark: value of the variable, by default a random value.

    Returns:
        The child, and the variables of the server that forks its Ray workers on a CPU.
    """
    mark = mark or secrets.token_hex(16)
    session: int | None = None
    try:
        with fork_server({**env, variable: mark}, output) as forks:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**env, variable: mark, **forks}, start_new_session=True, preexec_fn=begin_child,
            )  # fmt: skip
            session = child.pid
            try:
                yield child, forks
            finally:
                stop(child)
    finally:
        _end_processes(variable, mark, session)


def _end_processes(variable: str, mark: str, session: int | None = None) -> None:
    """Give the processes with this mark time to exit, kill the rest, and remove the weights that they left in memory.

    Processes in the exited child's session are killed too, because Ray's agents may outlive Ray and overwrite the mark.
    """
    psutil.wait_procs(_processes_with(variable, mark), STOP_S)
    for process in _processes_with(variable, mark, session):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for folder in SHARED_MEMORY.glob(f"{WEIGHTS}{mark}_*"):
        shutil.rmtree(folder, ignore_errors=True)


def stop(child: subprocess.Popen[bytes]) -> None:
    """Stop the child; Ray stops its own processes when their driver is gone."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def follow(child: subprocess.Popen[bytes], files: Sequence[Tail], watch: Callable[[], None] = _ignore) -> None:
    """Wait for the child, read new lines of its files, and call `watch` in between."""
    while True:
        has_ended = child.poll() is not None
        for file in files:
            file.read()
        if has_ended:
            return
        watch()
        time.sleep(POLL_S)


def begin_child() -> None:
    """Make a child die with its parent and let SIGQUIT end it, when called as `preexec_fn`.

    A shell's background jobs ignore SIGQUIT, and their children inherit this. SGLang's processes, however, use SIGQUIT
    to tell their server that they have failed; if SIGQUIT were ignored, a run would wait for a dead engine forever.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # Linux's PR_SET_PDEATHSIG
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def shared_files() -> set[Path]:
    """Return the shared-memory files that killed processes may have left behind."""
    return {path for pattern in LEFT_BEHIND for path in SHARED_MEMORY.glob(pattern)}


def remove_unused(candidates: set[Path]) -> None:
    """Remove the candidates that belong to this user and that no process has mapped.

    psutil's `memory_maps` would read `smaps`, for which the kernel walks the page tables of every process.
    """
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # a process has exited, or belongs to another user
            mapped |= set(re.findall(rf"{SHARED_MEMORY}/\S+", maps.read_text(errors="replace")))
    for path in candidates:
        if str(path) not in mapped and path.exists() and path.stat().st_uid == os.getuid():
            path.unlink(missing_ok=True)


class Tail:
    """Reads new lines of a growing file.

    Args:
        path: the file, which may not exist yet.
        offset: number of bytes to skip.
        on_line: called with each complete line.
    """

    def __init__(self, path: Path, offset: int, on_line: Callable[[str], None]) -> None:
        self._path, self._offset, self._on_line = path, offset, on_line

    def read(self) -> None:
        """Call `on_line` with each new complete line."""
        if self._path.exists():
            for start, line in whole_lines(self._path, self._offset):
                self._offset = start + len(line)
                self._on_line(line.decode(errors="replace").rstrip("\n"))


def _kept(
    metrics: Path, on_metrics: Callable[[int, dict[str, Any]], None], on_output: Callable[[str], None]
) -> Callable[[str], None]:
    """Return a function that appends each line of verl's file `NEW_METRICS` to `metrics.jsonl`."""
    file, is_first = metrics.with_name("metrics.jsonl"), True

    def keep(line: str) -> None:
        nonlocal is_first
        try:
            record = json.loads(line)
        except ValueError:  # a full disk may cut a line short without verl noticing
            on_output(f"agent_rl: the metrics of a step are lost: verl wrote only part of them to {metrics}")
            return
        if is_first and file.exists():
            lines = [each for _, each in whole_lines(file, 0) if _is_kept(json.loads(each), record)]
            replace_file(file, b"".join(lines).decode())
        is_first = False
        append_lines(file, f"{line}\n".encode())
        on_metrics(record["step"], record["data"])

    return keep


def _is_kept(earlier: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Whether to keep a step's metrics from an earlier start; each start first validates the step it resumes from."""
    if earlier["step"] != first["step"]:
        return bool(earlier["step"] < first["step"])
    return TRAINED in earlier["data"] and TRAINED not in first["data"]


def _processes_with(variable: str, value: str, session: int | None = None) -> list[psutil.Process]:
    """Return all other running processes that have inherited an environment variable, or belong to a session."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            is_own = process.environ().get(variable) == value or os.getsid(process.pid) == session
            if is_own and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes
