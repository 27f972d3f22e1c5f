"""Starts SGLang's processes as forks.

SGLang starts its scheduler and its detokenizer as new interpreters, each of which imports torch, transformers and
SGLang. SGLang's server process, a fork of `fork_server`, has already imported these packages, but by then it also runs
Ray's threads, and a process with threads cannot be forked safely. The server process is therefore forked once more
before Ray starts in it. The copy waits, and later serves as `multiprocessing`'s fork server.

The copy is a child of the server process and is killed with it. SGLang's processes exit when the copy exits; if they
send SIGQUIT to the copy, it forwards the signal to the server process.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import socket
import traceback
from multiprocessing import forkserver
from typing import Any, NoReturn

from agent_rl.cpu.forked_python import SERVER, send

ENGINE = "AGENT_RL_ENGINE"
"""Environment variable that marks a Ray worker in which SGLang's server will run; the platform sets it."""
PR_SET_PDEATHSIG = 1

_copy: socket.socket | None = None
"""Connection to the waiting copy of this process."""


def prepare() -> None:
    """Fork the copy. This process must be a fork made by `fork_server` and must not have threads yet."""
    global _copy
    path = f"{os.environ[SERVER]}_{os.getpid()}"  # in the launcher's folder
    _copy, other = socket.socketpair()
    alive_r, alive_w = os.pipe()
    with other, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        pid = os.fork()
        if pid == 0:
            _copy.close()
            os.close(alive_w)
            _become_fork_server(other, listener.detach(), alive_r)
    os.close(alive_r)
    server: Any = forkserver._forkserver  # the next line sets the attributes that `ensure_running` would set
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = path, alive_w, pid


def use() -> None:
    """Make `multiprocessing` start processes through the copy; without a copy, do nothing."""
    global _copy
    if _copy is None:
        return
    with _copy:
        send(_copy, {"environment": dict(os.environ)})
    _copy = None
    multiprocessing.set_start_method("forkserver", force=True)


def receive(sender: socket.socket) -> dict[str, Any]:
    """Receive a request, with the sender's standard streams under the key `streams`.

    Raises:
        ValueError: the sender exited without sending a request.
    """
    _, streams, _, _ = socket.recv_fds(sender, 1, 3)
    parts = []
    while part := sender.recv(65536):
        parts.append(part)
    return {**json.loads(b"".join(parts)), "streams": streams}


def take_streams(request: dict[str, Any]) -> None:
    """Replace this process's standard streams with the streams that came with a request."""
    for number, stream in enumerate(request["streams"]):
        os.dup2(stream, number)
        os.close(stream)


def _become_fork_server(process: socket.socket, listener: int, alive: int) -> NoReturn:
    """In the copy, wait for the environment and streams that Ray and SGLang have prepared, and serve requests."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        with process:
            request = receive(process)
        take_streams(request)
        os.environ.clear()
        os.environ.update(request["environment"])
        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        signal.signal(signal.SIGQUIT, lambda *_: os.kill(os.getppid(), signal.SIGQUIT))
        forkserver.main(listener, alive, [])
    except Exception:  # noqa: BLE001 - logged, because no caller could handle the error
        traceback.print_exc()
    finally:
        os._exit(0)
