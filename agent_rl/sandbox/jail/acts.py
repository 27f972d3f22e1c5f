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
_NEW_USER_NAMESPACE = 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Targets:
    """What a confined child must not reach; made and owned by the process that started it.

    Attributes:
        directory: outside the readable paths; holds the files `public` (mode 0644) and `private` (0600), and a socket
            `socket`.
        tcp_port: of a server on this machine.
        udp_port: of another.
        victim: the pid of a process of the same user as the prober.
    """

    directory: str
    tcp_port: int
    udp_port: int
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


def _rename(targets: Targets) -> None:
    os.rename(f"{targets.directory}/public", f"{targets.directory}/moved")
    os.rename(f"{targets.directory}/moved", f"{targets.directory}/public")


def _reach(family: int, kind: int, address: tuple[str, int] | str) -> None:
    with socket.socket(family, kind) as sock:
        sock.connect(address)
        sock.send(b"x")


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


def _new_namespace(_: Targets) -> None:
    if _libc.unshare(_NEW_USER_NAMESPACE) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


_FILES, _SECCOMP, _UID = frozenset({"landlock", "namespace"}), frozenset({"seccomp"}), frozenset({"uid"})

ACTS: dict[str, tuple[Callable[[Targets], object], frozenset[str]]] = {
    "read a file outside": (lambda at: _open(f"{at.directory}/public", os.O_RDONLY), _FILES),
    "list a directory outside": (lambda at: os.listdir(at.directory), _FILES),
    "write a file outside": (lambda at: _open(f"{at.directory}/public", os.O_WRONLY), _FILES),
    "create a file outside": (
        lambda at: _open(f"{at.directory}/{os.getpid()}", os.O_WRONLY | os.O_CREAT),
        _FILES,
    ),
    "rename a file outside": (_rename, _FILES),
    "read a private file of the user": (lambda at: _open(f"{at.directory}/private", os.O_RDONLY), _FILES | _UID),
    "signal another process": (lambda at: os.kill(at.victim, 0), _SECCOMP | _UID),
    "trace another process": (_ptrace, _SECCOMP | _UID),
    "become root again": (lambda at: os.setresuid(0, 0, 0), _UID),
    "change a file's mode": (lambda at: os.chmod(f"{at.directory}/public", 0o644), _SECCOMP | _UID),
    "connect over TCP": (
        lambda at: _reach(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", at.tcp_port)),
        _SECCOMP,
    ),
    "send over UDP": (lambda at: _reach(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", at.udp_port)), _SECCOMP),
    "connect to a unix socket": (
        lambda at: _reach(socket.AF_UNIX, socket.SOCK_STREAM, f"{at.directory}/socket"),
        _SECCOMP,
    ),
    "fork": (_fork, _SECCOMP),
    "execute a program": (_execute, _SECCOMP),
    "enter a new namespace": (_new_namespace, _SECCOMP),
}
"""Act -> how to try it, and the layers that must each refuse it alone."""
