"""Forbidden acts to try in a confined child, each with the layers that must stop it.

None of them does harm: signal 0 is sent, a missing program is executed, what is written lies in the probe's own
directory.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

__all__ = ["ACTS", "Targets", "attempt"]

_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Targets:
    """What a confined child must not reach; made and owned by the process that started it.

    Attributes:
        directory: outside the readable paths; holds the files `public` (mode 0644) and `private` (0600).
        port: of a server on this machine.
        victim: the pid of a process of the same user as the prober.
    """

    directory: str
    port: int
    victim: int


def attempt(act: Callable[[Targets], object], targets: Targets) -> str:
    """Return "denied" when the kernel refuses with an OSError, "ALLOWED" otherwise."""
    try:
        act(targets)
    except OSError:
        return "denied"
    return "ALLOWED"


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def _connect(targets: Targets) -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", targets.port))


def _ptrace(targets: Targets) -> None:
    if _libc.ptrace(_PTRACE_ATTACH, targets.victim, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(targets.victim, 0x40000000)  # __WALL: stopped
    _libc.ptrace(_PTRACE_DETACH, targets.victim, None, None)


def _fork(_: Targets) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _execute(targets: Targets) -> None:
    with suppress(FileNotFoundError):  # the kernel has looked for it
        os.execv(f"{targets.directory}/missing", ["missing"])


_FILES, _SECCOMP, _UID = frozenset({"landlock", "namespace"}), frozenset({"seccomp"}), frozenset({"uid"})

ACTS: dict[str, tuple[Callable[[Targets], object], frozenset[str]]] = {
    "read a file outside": (lambda at: _open(f"{at.directory}/public", os.O_RDONLY), _FILES),
    "list a directory outside": (lambda at: os.listdir(at.directory), _FILES),
    "write a file outside": (lambda at: _open(f"{at.directory}/public", os.O_WRONLY), _FILES),
    "create a file outside": (lambda at: _open(f"{at.directory}/new", os.O_WRONLY | os.O_CREAT), _FILES),
    "read a private file of the user": (lambda at: _open(f"{at.directory}/private", os.O_RDONLY), _FILES | _UID),
    "signal another process": (lambda at: os.kill(at.victim, 0), _SECCOMP | _UID),
    "trace another process": (_ptrace, _SECCOMP | _UID),
    "become root again": (lambda at: os.setresuid(0, 0, 0), _UID),
    "change a file's mode": (lambda at: os.chmod(f"{at.directory}/public", 0o644), _SECCOMP | _UID),
    "connect to a server": (_connect, _SECCOMP),
    "fork": (_fork, _SECCOMP),
    "execute a program": (_execute, _SECCOMP),
}
"""Act -> how to try it, and the layers that must each refuse it alone."""
