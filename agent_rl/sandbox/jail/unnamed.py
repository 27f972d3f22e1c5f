"""What a process holds on disk without a name: files that it deleted and still has open or mapped.

No walk through its directory finds them, and they fill the disk all the same. The kernel shows them to a parent that
may look into the process: one of the same user, or one with CAP_SYS_PTRACE. Where that is not so, and for files that
are mapped in another mount namespace, nothing is found. Standard library only.
"""

from __future__ import annotations

import os
import stat

__all__ = ["unnamed_bytes"]

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def unnamed_bytes(proc: int, pid: int, scratch: str, file_bytes: int) -> int:
    """Bytes on disk of deleted files that `pid` keeps alive.

    Args:
        proc: a descriptor of /proc.
        pid: the process.
        scratch: the one directory that it can make files in.
        file_bytes: how large a file can be; taken as the size of one that is mapped and not open.
    """
    for task in (str(pid), *_names(proc, f"{pid}/task")):  # the first thread may have ended before the others
        opened = _opened(proc, f"{pid}/task/{task}/fd")
        if opened is not None:
            mapped = _mapped(proc, f"{pid}/task/{task}/maps", scratch)
            return sum(opened.values()) + file_bytes * len(mapped - opened.keys())
    return 0


def _opened(proc: int, path: str) -> dict[int, int] | None:
    """Inode -> bytes of the deleted files among the descriptors; None where there are no descriptors at all."""
    try:
        folder = os.open(path, _DIRECTORY, dir_fd=proc)
    except OSError:
        return None
    found = {}
    try:
        names = os.listdir(folder)
        for name in names:
            try:
                status = os.stat(name, dir_fd=folder)
            except OSError:  # closed meanwhile
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                found[status.st_ino] = status.st_blocks * 512
    except OSError:  # it has ended, or we may not look
        return None
    finally:
        os.close(folder)
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


def _names(proc: int, path: str) -> list[str]:
    try:
        folder = os.open(path, _DIRECTORY, dir_fd=proc)
    except OSError:
        return []
    try:
        return os.listdir(folder)
    except OSError:
        return []
    finally:
        os.close(folder)
