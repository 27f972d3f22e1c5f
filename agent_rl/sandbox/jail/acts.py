"""Forbidden acts to try in a confined child, each with the layer that must stop it by itself.

None of them harms: signal 0 is sent, a missing program is executed, what is written lies in the probe's own directory.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ACTS", "Targets", "attempt"]

_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
_NEW_USER_NAMESPACE = 0x10000000


@dataclass(frozen=True)
class Targets:
    """What a confined child must not reach; made and owned by the process that started it."""

    directory: str
    """Outside the readable paths; holds the files `public` (mode 0644) and `private` (0600), and a socket `socket`."""
    tcp_port: int
    udp_port: int
    victim: int
    """The pid of a process of the same user as the prober."""


def attempt(act: Callable[[Targets], None], targets: Targets) -> str:
    """Return "denied" when the kernel refuses with an OSError, "ALLOWED" otherwise."""
    try:
        act(targets)
    except OSError:
        return "denied"
    return "ALLOWED"


def _read(targets: Targets) -> None:
    os.close(os.open(f"{targets.directory}/public", os.O_RDONLY))


def _read_private(targets: Targets) -> None:
    os.close(os.open(f"{targets.directory}/private", os.O_RDONLY))


def _list(targets: Targets) -> None:
    os.listdir(targets.directory)


def _write(targets: Targets) -> None:
    os.close(os.open(f"{targets.directory}/public", os.O_WRONLY))


def _create(targets: Targets) -> None:
    os.close(os.open(f"{targets.directory}/{os.getpid()}", os.O_WRONLY | os.O_CREAT))


def _delete(targets: Targets) -> None:
    os.rename(f"{targets.directory}/public", f"{targets.directory}/moved")
    os.rename(f"{targets.directory}/moved", f"{targets.directory}/public")


def _chmod(targets: Targets) -> None:
    os.chmod(f"{targets.directory}/public", 0o644)


def _tcp(targets: Targets) -> None:
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", targets.tcp_port))


def _udp(targets: Targets) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", targets.udp_port))


def _unix(targets: Targets) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"{targets.directory}/socket")


def _kill(targets: Targets) -> None:
    os.kill(targets.victim, 0)


def _ptrace(targets: Targets) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.ptrace(_PTRACE_ATTACH, targets.victim, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(targets.victim, 0x40000000)  # __WALL: stopped
    library.ptrace(_PTRACE_DETACH, targets.victim, None, None)


def _fork(targets: Targets) -> None:
    del targets
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _execute(targets: Targets) -> None:
    try:
        os.execv(f"{targets.directory}/missing", ["missing"])
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def _new_namespace(targets: Targets) -> None:
    del targets
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_NEW_USER_NAMESPACE) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def _regain(targets: Targets) -> None:
    del targets
    os.setresuid(0, 0, 0)


ACTS: dict[str, tuple[Callable[[Targets], None], frozenset[str]]] = {
    "read a file outside": (_read, frozenset({"landlock", "namespace"})),
    "list a directory outside": (_list, frozenset({"landlock", "namespace"})),
    "write a file outside": (_write, frozenset({"landlock", "namespace"})),
    "create a file outside": (_create, frozenset({"landlock", "namespace"})),
    "rename a file outside": (_delete, frozenset({"landlock", "namespace"})),
    "read a private file of the user": (_read_private, frozenset({"uid", "landlock", "namespace"})),
    "signal another process": (_kill, frozenset({"uid", "seccomp"})),
    "trace another process": (_ptrace, frozenset({"uid", "seccomp"})),
    "become root again": (_regain, frozenset({"uid"})),
    "change a file's mode": (_chmod, frozenset({"uid", "seccomp"})),
    "connect over TCP": (_tcp, frozenset({"seccomp"})),
    "send over UDP": (_udp, frozenset({"seccomp"})),
    "connect to a unix socket": (_unix, frozenset({"seccomp"})),
    "fork": (_fork, frozenset({"seccomp"})),
    "execute a program": (_execute, frozenset({"seccomp"})),
    "enter a new namespace": (_new_namespace, frozenset({"seccomp"})),
}
"""What to try, and the layers each of which alone must refuse it."""
