"""The directories that programs may write to: made, measured, emptied, and removed after their owner was killed.

A zygote owns one root with a locked file in it; the lock falls when the zygote and its children are gone, whatever
ended them, and then `sweep` removes the root.

The measure includes files that a program deleted and still has open or mapped: no walk through its directory finds
them, and they fill the disk all the same. The kernel shows them to a parent that may look into the process: one of the
same user, or one with CAP_SYS_PTRACE. Otherwise, and for files mapped in another mount namespace, nothing is found.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

from .layers import MAX_THREADS
from .protocol import Reason, ZygoteSettings

__all__ = ["ScratchRoot", "excess", "measure", "remove_tree", "sweep", "touched", "unnamed_bytes"]

_PREFIX = "agent_rl-sandbox-"
_LOCK = "lock"
_MAX_VANISHED = (
    20  # counts in which something is gone between being listed and being looked at: it is moved all the time
)
_MAX_MAPS_BYTES = 2 << 20  # of the list of a process's mappings: what is longer takes too long to read
_MAX_FILES = 2000
_MAX_DEPTH = 64  # directories in directories: what is deeper takes too long to measure


class ScratchRoot:
    """A new root below `parent`; directories are lent out with `take` and come back with `give_back`."""

    def __init__(self, parent: str) -> None:
        self.path = f"{parent}/{_PREFIX}{os.urandom(8).hex()}"
        os.mkdir(self.path)
        os.chmod(self.path, 0o711)  # a program with a uid of its own must get through
        self.lock = os.open(f"{self.path}/new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        os.rename(f"{self.path}/new", f"{self.path}/{_LOCK}")  # locked before a sweep can see it
        self._made = 0
        self._free: list[str] = []
        self.used: list[str] = []  # to be removed, which takes as long as a program likes

    def link(self, targets: dict[str, str]) -> str:
        """A directory of symbolic links, name -> target; returns its path."""
        folder = f"{self.path}/packages"
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        for name, target in targets.items():
            os.symlink(target, f"{folder}/{name}")
        return folder

    def take(self) -> str:
        """An empty directory of mode 0700."""
        if self._free:
            return self._free.pop()
        self._made += 1
        path = f"{self.path}/{self._made}"
        os.mkdir(path, 0o700)
        os.utime(path, (0, 0))  # which making anything in it changes
        return path

    def give_back(self, path: str) -> None:
        """Lend `path` again if nothing was ever made in it (making one costs more than all else), else have it removed.

        A directory keeps the size that it has grown to, and the time of its last change.
        """
        (self.used if touched(path) else self._free).append(path)


def touched(path: str) -> bool:
    """Whether anything was ever made or removed in `path`, which `take` gave."""
    return os.stat(path).st_mtime_ns != 0


def measure(path: str, max_bytes: int) -> tuple[int, int]:
    """Bytes on disk and number of files below `path`; counting stops once either is beyond its limit.

    What is gone between being listed and being looked at was removed, or moved to where it would be missed: counting
    begins again, and the largest of `_MAX_VANISHED` counts holds. A directory that is gone every time counts as too
    many files; so does one that is nested deeper than `_MAX_DEPTH` or cannot be read.
    """
    most = (0, 0)
    for _ in range(_MAX_VANISHED):
        size, count, gone = _count(path, max_bytes)
        if gone is None or size > max_bytes or count > _MAX_FILES:
            return size, count
        most = max(most, (size, count))
    return (most[0], _MAX_FILES + 1) if gone == "directory" else most


def _count(path: str, max_bytes: int) -> tuple[int, int, str | None]:
    """Bytes and number of files, and what was gone before it was looked at: a "file", a "directory" or nothing."""
    size = count = 0
    gone = None
    folders = [(path, 0)]
    while folders and size <= max_bytes and count <= _MAX_FILES:
        folder, depth = folders.pop()
        if depth > _MAX_DEPTH:
            return size, _MAX_FILES + 1, None
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    try:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                        count += 1
                        if is_folder:
                            folders.append((entry.path, depth + 1))
                    except FileNotFoundError:
                        gone = "directory" if is_folder else gone or "file"
                    if count > _MAX_FILES:
                        break
        except FileNotFoundError:
            gone = "directory"
        except OSError:  # its path is too long, or it may not be read: made so that nobody counts what is in it
            return size, _MAX_FILES + 1, None
    return size, count, gone


def remove_tree(path: str) -> None:
    """Remove `path` however deep it is nested: what is in a directory's directories is moved up first."""
    moved = 0
    stem = f"{path}/{os.urandom(8).hex()}"  # a program cannot have taken these names
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
            for entry in list(os.scandir(folder)):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                elif folder == path:
                    waiting.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        os.chmod(entry.path, 0o700)  # a directory that is moved gets a new "..", which needs the right
                    moved += 1
                    os.rename(entry.path, f"{stem}.{moved}")
                    waiting.append(f"{stem}.{moved}")
        if folder != path:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def sweep(parent: str) -> None:
    """Remove the roots below `parent` that nobody holds any more."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(parent)):
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # another user's, still held, or gone meanwhile
                    lock = os.open(f"{entry.path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        remove_tree(entry.path)
                    finally:
                        os.close(lock)


def excess(proc: int, pid: int, scratch: str, limits: ZygoteSettings, *, count_threads: bool) -> Reason | None:
    """The limit that a program exceeds, if any.

    Args:
        proc: a descriptor of /proc.
        pid: its process.
        scratch: its directory.
        limits: what it may have.
        count_threads: whether nothing else bounds them.
    """
    size, count = measure(scratch, limits.disk_bytes)
    if size <= limits.disk_bytes and touched(scratch):
        unnamed = unnamed_bytes(proc, pid, scratch, limits.file_bytes)
        if unnamed is None:
            return Reason.MAPPINGS
        size += unnamed
    if size > limits.disk_bytes:
        return Reason.DISK
    if count > _MAX_FILES:
        return Reason.FILES
    if count_threads:
        with (
            contextlib.suppress(OSError),
            open(os.open(f"{pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as file,
        ):
            if int(file.read().rpartition(b")")[2].split()[17]) > MAX_THREADS:
                return Reason.THREADS
    return None


def unnamed_bytes(proc: int, pid: int, scratch: str, file_bytes: int) -> int | None:
    """Bytes on disk of deleted files that `pid` keeps alive; None: it has too many mappings to find out.

    Args:
        proc: a descriptor of /proc.
        pid: the process.
        scratch: the one directory that it can make files in.
        file_bytes: how large a file can be; taken as the size of one that is mapped and not open.
    """
    tasks = [str(pid)]  # the first thread may have ended before the others
    with contextlib.suppress(OSError), _folder(proc, f"{pid}/task") as folder:
        tasks += os.listdir(folder)
    for task in tasks:
        opened = _opened(proc, f"{pid}/task/{task}/fd")
        if opened is not None:
            mapped = _mapped(proc, f"{pid}/task/{task}/maps", scratch)
            if mapped is None:
                return None
            return sum(opened.values()) + file_bytes * len(mapped - opened.keys())
    return 0


@contextlib.contextmanager
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
    with contextlib.suppress(OSError), _folder(proc, path) as folder:
        names = os.listdir(folder)
        for name in names:
            with contextlib.suppress(OSError):  # closed meanwhile
                status = os.stat(name, dir_fd=folder)
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    found[status.st_ino] = status.st_blocks * 512
    return found if names else None


def _mapped(proc: int, path: str, scratch: str) -> set[int] | None:
    """Inodes of the deleted files of `scratch` that are mapped; None for more mappings than there is time for."""
    inside = os.fsencode(scratch) + b"/"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as file:
            text = file.read(_MAX_MAPS_BYTES)
    except OSError:
        return set()
    if len(text) == _MAX_MAPS_BYTES:
        return None
    lines = [line.split(maxsplit=5) for line in text.split(b"\n") if line.endswith(b" (deleted)")]
    return {int(fields[4]) for fields in lines if fields[5].startswith(inside)}
