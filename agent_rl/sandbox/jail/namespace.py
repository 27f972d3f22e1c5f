"""A mount namespace with only the readable paths, for machines without Landlock.

A zygote enters the namespace once, before warming up, and its children inherit it. The zygote and its children get new
user, mount, network, IPC and UTS namespaces, a read-only root, and nothing of /proc except /proc/self/statm. Children
share a user id, so each child hides the other directories with `hide_neighbours`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from ctypes import addressof, create_string_buffer

from .syscalls import PR_GET_DUMPABLE, PR_SET_DUMPABLE, call

_NEW_NAMESPACES = 0x10000000 | 0x00020000 | 0x40000000 | 0x08000000 | 0x04000000  # user, mount, network, IPC and UTS
_READ_ONLY, _NO_SUID, _NO_DEVICES, _NO_EXEC, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = (
    *(1, 2, 4, 8, 32),
    *(1 << 12, 1 << 14, 1 << 18),
)
_KEPT = {0x1: 0x1, 0x2: 0x2, 0x4: 0x4, 0x8: 0x8, 0x400: 0x400, 0x800: 0x800, 0x1000: 1 << 21}
"""The mount flag for each statvfs flag; the kernel requires that a remount keeps the flags of its source."""
_NEW_MOUNTS, _MOVE = 0x00020000, 1 << 13
_DETACH = 2
_STATM = "/proc/self/statm"
_STAGES = ("/tmp", "/mnt", "/var/tmp", "/dev/shm", "/run")


def enter_namespace(readable: Sequence[str], writable: str) -> None:
    """Move the calling process into a file system with only `readable` (read-only) and `writable`, at unchanged paths.

    The process must have only one thread. Afterwards the process's working directory is the root, and /proc/self/statm
    shows the size of this process, also in children.

    Args:
        readable: files, directories and devices; missing paths are skipped.
        writable: the parent of the scratch directories.

    Raises:
        OSError: this machine does not permit namespaces; the process must exit.
    """
    _enter_namespaces()
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    paths = {writable: os.open(writable, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)}
    for path in _outermost([*readable, _STATM]):  # mounted after the writable path, which may contain readable paths
        paths[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    stage = next(path for path in _STAGES if os.path.isdir(path))
    _mount("tmpfs", stage, "tmpfs", _NO_SUID | _NO_DEVICES)
    for path, descriptor in paths.items():
        _bind(descriptor, stage + os.path.abspath(path))
        os.close(descriptor)
    for mounted in list(_mounts_below(stage)):
        _restrict(mounted, _NO_EXEC if mounted == stage + os.path.abspath(writable) else _READ_ONLY)
    _mount(None, stage, None, _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEVICES)
    _change_root(stage)


def hide_neighbours(scratch: str, readable: Sequence[str]) -> None:
    """Hide everything but `scratch` and readable paths in the parent of `scratch`, for this process only.

    The process's working directory becomes `scratch`.

    Raises:
        OSError: the kernel refuses; the process must exit.
    """
    parent, own = os.path.split(scratch)
    sources = {os.path.basename(path): path for path in readable if os.path.dirname(path) == parent}
    os.chdir(scratch)
    call("unshare", _NEW_MOUNTS)
    _mount("tmpfs", scratch, "tmpfs", _NO_SUID | _NO_DEVICES | _NO_EXEC)  # the tmpfs will replace the parent directory
    for name, source in {own: ".", **sources}.items():
        os.mkdir(f"{scratch}/{name}")
        _mount(source, f"{scratch}/{name}", None, _BIND)
    _mount(None, scratch, None, _REMOUNT | _READ_ONLY | _NO_SUID | _NO_DEVICES | _NO_EXEC)
    _mount(scratch, parent, None, _MOVE)
    os.chdir(scratch)


def _enter_namespaces() -> None:
    """Enter the namespaces; the process's user and group keep their ids, and all other ids are unmapped."""
    uid, gid = os.geteuid(), os.getegid()
    dumpable = call("prctl", PR_GET_DUMPABLE)
    call("unshare", _NEW_NAMESPACES)
    call("prctl", PR_SET_DUMPABLE, 1)  # otherwise /proc/self belongs to root and the maps are not writable
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    call("prctl", PR_SET_DUMPABLE, 1 if dumpable == 1 else 0)


def _outermost(paths: Sequence[str]) -> Iterator[str]:
    """Yield the existing paths that are not below another path."""
    kept: list[str] = []
    for path in sorted({os.path.abspath(path) for path in paths if os.path.exists(path)}):
        if not any((path + "/").startswith(outer.rstrip("/") + "/") for outer in kept):
            kept.append(path)
            yield path


def _bind(descriptor: int, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC))
    _mount(f"/proc/self/fd/{descriptor}", target, None, _BIND | _RECURSIVE)


def _mounts_below(stage: str) -> Iterator[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            path = os.fsdecode(line.split()[4].decode("unicode_escape").encode("latin-1"))
            if path.startswith(stage + "/"):
                yield path


def _restrict(path: str, flags: int) -> None:
    """Remount `path` with more restrictions; if it is a device file, it can still be used as a device."""
    flags_before = os.statvfs(path).f_flag
    kept = sum(flag for bit, flag in _KEPT.items() if flags_before & bit)
    devices = 0 if stat.S_ISCHR(os.stat(path).st_mode) else _NO_DEVICES
    _mount(None, path, None, _REMOUNT | _BIND | _NO_SUID | devices | flags | kept)


def _change_root(stage: str) -> None:
    os.chdir(stage)
    here = create_string_buffer(b".")
    call("pivot_root", addressof(here), addressof(here))
    call("umount2", addressof(here), _DETACH)
    os.chdir("/")


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    buffers = [create_string_buffer(os.fsencode(text)) if text is not None else None for text in (source, target, kind)]
    first, second, third = (addressof(buffer) if buffer is not None else 0 for buffer in buffers)
    try:
        call("mount", first, second, third, flags)
    except OSError as error:
        raise OSError(error.errno, f"mount {target}: {error.strerror}") from None
