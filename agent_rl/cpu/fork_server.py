"""Starts Ray's workers as forks of a process that has imported the libraries of verl and SGLang.

A run has about eight Ray workers, and each imports torch, transformers and more, which on two cores takes most of a
short run's time. The launcher starts `python -m agent_rl.cpu.fork_server` together with the trainer; Ray starts its
workers with `forked_python` instead of Python. verl, agent_rl and the user's modules are not imported here, because the
effects of importing them depend on each worker's environment.

A worker starts with everything a new interpreter would get: arguments, environment, working directory, standard streams
and process group. A library that starts threads when it is imported must not be in `LIBRARIES`. pyarrow's allocator
also starts threads, but it works after a fork.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from omegaconf import OmegaConf

from agent_rl.cpu import engine_forks, switch
from agent_rl.cpu.engine_forks import receive, take_streams
from agent_rl.cpu.forked_python import SERVER
from agent_rl.settings.old_keys import RUN

LIBRARIES = (
    "torch",
    "transformers",
    "tensordict",
    "datasets",
    "peft",
    "torchdata.stateful_dataloader",
    "hydra",
    "aiohttp",
    "sglang.srt.entrypoints.http_server",
)
"""Third-party modules that verl's processes import, in the order of import."""
RAYS = ("ray.util.state",)
"""Modules imported in the first worker's environment, because Ray reads its settings when it is imported. A module that
defines actors, such as transfer_queue, must not be listed: importing it seeds Ray's random numbers, so all forks would
give their tasks the same ids, which crashes actors that several forks call."""


PYTHON = "AGENT_RL_WORKER_PYTHON"
"""Environment variable with the command that replaces Python on this node; the launcher sets the variable."""


@contextmanager
def fork_server(environ: Mapping[str, str], output: Any) -> Iterator[dict[str, str]]:
    """Run a fork server during this block and yield the variables that Ray's processes and their driver need.

    Without `VERL_PLATFORM=cpu`, or if the trainer joins a running Ray cluster, no server starts and no variables are
    yielded.

    Args:
        environ: the trainer's environment.
        output: file that receives the libraries' output.
    """
    if not switch.is_selected() or environ.get("RAY_ADDRESS", "local") not in ("", "local"):
        yield {}
        return
    short = environ.get("RAY_TMPDIR")  # a folder for sockets, whose paths must be short
    if short:
        os.makedirs(short, exist_ok=True)  # the folder is needed now, but Ray creates it only later
    prefix = f"agent_rl_{environ.get(RUN, '')}"
    if RUN in environ:  # remove the folders that earlier, killed starts of this run left behind
        for left in Path(short or tempfile.gettempdir()).glob(f"{prefix}_*"):
            shutil.rmtree(left, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"{prefix}_", dir=short or None)
    path = f"{folder}/forks"
    environ = {**environ, **switch.child_environment(), "OMP_NUM_THREADS": "1"}  # forks lose OpenMP's threads
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(path)
            listener.listen(64)  # workers queue here while the server imports the libraries
            fd = listener.fileno()
            server = subprocess.Popen(
                [sys.executable, "-m", __name__, str(fd)],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[fd],
                start_new_session=True,
            )
        with server:
            try:
                client = Path(__file__).with_name("forked_python.py")
                yield {SERVER: path, PYTHON: shlex.join([sys.executable, "-I", "-S", str(client)])}
            finally:
                server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def fork_workers(module: ModuleType) -> None:
    """`verl.utils.device`: make Ray start workers through their node's fork server, if the launcher has started one.

    verl's `main` first calls `auto_set_device` with its configuration. The shell in which Ray starts a worker expands
    the variable in `py_executable`.
    """
    original = module.auto_set_device

    @functools.wraps(original)
    def auto_set_device(config: Any) -> None:
        original(config)
        runtime_env: Any = OmegaConf.select(config, "ray_kwargs.ray_init.runtime_env") or {}
        if PYTHON in os.environ and runtime_env.get("py_executable", "") is None:
            runtime_env.py_executable = f"${PYTHON}"

    module.auto_set_device = auto_set_device  # type: ignore[attr-defined]


def main(fd: int) -> None:
    """Serve requests until standard input is closed; in a fork, run the requested script."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # Ray's processes block SIGINT and exit with the driver
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # see `launch.process.begin_child`
    environment = dict(os.environ)
    if sys.path[0] == os.getcwd():
        sys.path[0] = ""  # in a fork, `_become` replaces this empty entry with the folder of the fork's script
    with socket.socket(fileno=fd) as listener:
        _import(LIBRARIES)
        added = {name: value for name, value in os.environ.items() if environment.get(name) != value}
        request = _serve(listener, added)
    if request is not None:
        _become(request)


def _import(names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(ImportError):  # SGLang is not installed everywhere
            importlib.import_module(name)
    gc.freeze()  # otherwise garbage collection writes to every page, and each fork must copy the pages
    gc.collect()  # otherwise the next full collection would wait until the number of objects has grown by a quarter


def _serve(listener: socket.socket, added: Mapping[str, str]) -> dict[str, Any] | None:
    """Serve requests; in a fork, return the request that it must run; in the server, return None at the trainer's exit.

    Args:
        listener: the socket to which clients connect.
        added: variables that the libraries have set.
    """
    signal.signal(signal.SIGCHLD, _reap)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if sys.stdin in ready:
                return None
            connection, _ = listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                request = receive(connection)
                os.environ.clear()
                os.environ.update({**added, **request["environment"]})
                if "ray" not in sys.modules:
                    _import(RAYS)
                if os.fork() == 0:
                    connection.sendall(b"1")
                    return request
                for stream in request["streams"]:
                    os.close(stream)


def _reap(signum: int, frame: Any) -> None:
    """Reap workers that have exited, because Ray checks if a worker's process still exists."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(request: dict[str, Any]) -> None:
    """Run the script as a new interpreter would."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    take_streams(request)
    if request["leads_group"]:
        os.setpgid(0, 0)
    os.nice(request["niceness"] - os.nice(0))
    Path("/proc/self/oom_score_adj").write_text(request["oom_score"])
    os.chdir(request["folder"])
    import numpy as np

    np.random.seed()
    if engine_forks.ENGINE in os.environ:
        engine_forks.prepare()
    sys.argv = request["arguments"]
    sys.path = [str(Path(sys.argv[0]).parent) if folder == "" else folder for folder in sys.path]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(int(sys.argv[1]))
