"""Starts SGLang's processes as forks, too.

SGLang starts its scheduler and its detokenizer as new interpreters, each of which imports torch, transformers and
SGLang. The process of its server is a fork of `fork_server` and has imported them, but by then it has Ray's threads,
and a process with threads cannot be forked safely. So it is forked once more before Ray starts in it. This copy waits,
and then is the fork server of `multiprocessing`.

The copy is a child of the server's process and ends with it; SGLang's processes end with the copy, which passes on what
they tell their parent by SIGQUIT.
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

__all__ = ["ENGINE", "prepare", "receive", "take_streams", "use"]

ENGINE = "AGENT_RL_ENGINE"
"""Environment variable of a Ray worker in which SGLang's server is to run; the platform sets it."""
PR_SET_PDEATHSIG = 1

_copy: socket.socket | None = None
"""To the copy of this process that waits."""


def prepare() -> None:
    """Fork the copy. This process must not have threads yet, and must have been forked by `fork_server`."""
    global _copy
    path = f"{os.environ[SERVER]}_{os.getpid()}"  # in a folder of the launcher
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
    known: Any = forkserver._forkserver  # left as by its `ensure_running`
    known._forkserver_address, known._forkserver_alive_fd, known._forkserver_pid = path, alive_w, pid


def use() -> None:
    """Have `multiprocessing` start processes by the copy from now on; without one it starts interpreters as before."""
    global _copy
    if _copy is None:
        return
    with _copy:
        send(_copy, {"environment": dict(os.environ)})
    _copy = None
    multiprocessing.set_start_method("forkserver", force=True)


def receive(sender: socket.socket) -> dict[str, Any]:
    """The request, with the streams as `streams`.

    Raises:
        ValueError: the sender has ended without one.
    """
    _, streams, _, _ = socket.recv_fds(sender, 1, 3)
    parts = []
    while part := sender.recv(65536):
        parts.append(part)
    return {**json.loads(b"".join(parts)), "streams": streams}


def take_streams(request: dict[str, Any]) -> None:
    """Make those of a request the standard streams of this process."""
    for number, stream in enumerate(request["streams"]):
        os.dup2(stream, number)
        os.close(stream)


def _become_fork_server(process: socket.socket, listener: int, alive: int) -> NoReturn:
    """In the copy: wait for environment and streams, which Ray and SGLang have changed meanwhile, and serve."""
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
    except Exception:  # noqa: BLE001 - for the server's log; there is nobody to raise it to
        traceback.print_exc()
    finally:
        os._exit(0)
