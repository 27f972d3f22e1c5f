"""Measures a running program's disk space, files and threads, which the kernel does not limit.

Also counted are files that a program deleted and still has open or mapped: no walk through its directory finds them,
and they fill the disk all the same. The kernel shows them to a parent that may look into the process: one of the same
user, or one with CAP_SYS_PTRACE. Where that is not so, and for files that are mapped in another mount namespace,
nothing is found.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .protocol import Reason, ZygoteSettings
from .scratch import measure, touched

__all__ = ["excess", "unnamed_bytes"]


def excess(proc: int, pid: int, scratch: str, limits: ZygoteSettings, *, count_threads: bool) -> Reason | None:
    """The limit that a program exceeds, if any.

    Args:
        proc: a descriptor of /proc.
        pid: its process.
        scratch: its directory.
        limits: what it may have.
        count_threads: whether nothing else bounds them.
    """
    size, count = measure(scratch, limits.disk_bytes, limits.max_files)
    if size <= limits.disk_bytes and touched(scratch):
        size += unnamed_bytes(proc, pid, scratch, limits.file_bytes)
    if size > limits.disk_bytes:
        return Reason.DISK
    if count > limits.max_files:
        return Reason.FILES
    if count_threads:
        with suppress(OSError), open(os.open(f"{pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[17]) > limits.max_threads:
                return Reason.THREADS
    return None


def unnamed_bytes(proc: int, pid: int, scratch: str, file_bytes: int) -> int:
    """Bytes on disk of deleted files that `pid` keeps alive.

    Args:
        proc: a descriptor of /proc.
        pid: the process.
        scratch: the one directory that it can make files in.
        file_bytes: how large a file can be; taken as the size of one that is mapped and not open.
    """
    tasks = [str(pid)]  # the first thread may have ended before the others
    with suppress(OSError), _folder(proc, f"{pid}/task") as folder:
        tasks += os.listdir(folder)
    for task in tasks:
        opened = _opened(proc, f"{pid}/task/{task}/fd")
        if opened is not None:
            mapped = _mapped(proc, f"{pid}/task/{task}/maps", scratch)
            return sum(opened.values()) + file_bytes * len(mapped - opened.keys())
    return 0


@contextmanager
def _folder(proc: int, path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=proc)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(proc: int, path: str) -> dict[int, int] | None:
    """Inode -> bytes of the deleted files among the descriptors; None without descriptors, or if we may not look."""
    names: list[str] = []
    found = {}
    with suppress(OSError), _folder(proc, path) as folder:
        names = os.listdir(folder)
        for name in names:
            with suppress(OSError):  # closed meanwhile
                status = os.stat(name, dir_fd=folder)
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    found[status.st_ino] = status.st_blocks * 512
    return found if names else None


def _mapped(proc: int, path: str, scratch: str) -> set[int]:
    """Inodes of the deleted files of `scratch` that are mapped."""
    inside = os.fsencode(scratch) + b"/"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as file:
            lines = [line.split(maxsplit=5) for line in file if line.endswith(b" (deleted)\n")]
    except OSError:
        return set()
    return {int(fields[4]) for fields in lines if fields[5].startswith(inside)}
