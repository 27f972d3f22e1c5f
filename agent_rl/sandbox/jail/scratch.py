"""Creates and measures programs' writable directories, and removes them even if their zygote was killed.

A zygote has one root directory, which contains a locked file. The kernel releases the lock when the zygote and its
children have ended, and then `sweep` removes the root.

The measurement includes deleted files that a program still has open or mapped, because they use disk space although a
walk through the program's directory does not find them. The kernel shows such files only to a parent process that runs
as the same user or has CAP_SYS_PTRACE. Without such a parent, or if files are mapped in another mount namespace,
deleted files are not counted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator

from .layers import MAX_THREADS
from .protocol import Reason, ZygoteSettings

_PREFIX = "agent_rl-sandbox-"
_LOCK = "lock"
_MAX_VANISHED = 20  # after this many counts with vanishing entries, the program is assumed to move entries on purpose
_MAX_MAPS_BYTES = 2 << 20  # maximum length of a process's list of mappings; a longer list takes too long to read
_MAX_FILES = 2000
_MAX_DEPTH = 64  # maximum nesting of directories; deeper trees take too long to measure


class ScratchRoot:
    """A new root under `parent`, whose directories are borrowed with `take` and returned with `give_back`."""

    def __init__(self, parent: str) -> None:
        self.path = f"{parent}/{_PREFIX}{os.urandom(8).hex()}"
        os.mkdir(self.path)
        os.chmod(self.path, 0o711)  # lets a program with its own uid enter the sandbox's root directory
        self.lock = os.open(f"{self.path}/new", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        os.rename(f"{self.path}/new", f"{self.path}/{_LOCK}")  # the file is locked before `sweep` can see it
        self._made = 0
        self._free: list[str] = []
        self.used: list[str] = []  # directories to be removed, which can take a long time

    def link(self, targets: dict[str, str]) -> str:
        """Create a directory of symbolic links from names to targets, and return its path."""
        folder = f"{self.path}/packages"
        os.mkdir(folder)
        os.chmod(folder, 0o755)
        for name, target in targets.items():
            os.symlink(target, f"{folder}/{name}")
        return folder

    def take(self) -> str:
        """Return an empty directory with mode 0700."""
        if self._free:
            return self._free.pop()
        self._made += 1
        path = f"{self.path}/{self._made}"
        os.mkdir(path, 0o700)
        os.utime(path, (0, 0))  # any other modification time will show that the program changed it
        return path

    def give_back(self, path: str) -> None:
        """Reuse `path` if nothing was created in it, because new directories are expensive; otherwise have it removed.

        A used directory cannot be reused, because it would keep its size and its modification time.
        """
        (self.used if touched(path) else self._free).append(path)


def touched(path: str) -> bool:
    """Whether anything was ever created or removed in `path`, a directory from `take`."""
    return os.stat(path).st_mtime_ns != 0


def measure(path: str, max_bytes: int) -> tuple[int, int]:
    """Return the bytes on disk and the number of files under `path`; stop counting as soon as a limit is exceeded.

    If an entry vanishes during the count, it was removed or moved out of sight, so the count restarts. The largest of
    `_MAX_VANISHED` counts is used. A directory that vanishes every time, is nested deeper than `_MAX_DEPTH` or cannot
    be read is treated as too many files.
    """
    most = (0, 0)
    for _ in range(_MAX_VANISHED):
        size, count, gone = _count(path, max_bytes)
        if gone is None or size > max_bytes or count > _MAX_FILES:
            return size, count
        most = max(most, (size, count))
    return (most[0], _MAX_FILES + 1) if gone == "directory" else most


def _count(path: str, max_bytes: int) -> tuple[int, int, str | None]:
    """Return the bytes, the number of files, and the kind of entry that vanished: "file", "directory" or None."""
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
        except OSError:  # the program made the path too long or unreadable to prevent counting
            return size, _MAX_FILES + 1, None
    return size, count, gone


def remove_tree(path: str) -> None:
    """Remove `path`, however deeply it is nested, by moving subdirectories up first."""
    moved = 0
    stem = f"{path}/{os.urandom(8).hex()}"  # random, so that a program cannot choose the same names
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
                        os.chmod(entry.path, 0o700)  # moving a directory changes its "..", which needs write access
                    moved += 1
                    os.rename(entry.path, f"{stem}.{moved}")
                    waiting.append(f"{stem}.{moved}")
        if folder != path:
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    with contextlib.suppress(OSError):
        os.rmdir(path)


def sweep(parent: str) -> None:
    """Remove the roots under `parent` whose zygote has ended."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(parent)):
            if entry.name.startswith(_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # the root belongs to another user, is in use, or has been removed
                    lock = os.open(f"{entry.path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        remove_tree(entry.path)
                    finally:
                        os.close(lock)


def excess(proc: int, pid: int, scratch: str, limits: ZygoteSettings, *, count_threads: bool) -> Reason | None:
    """Return the limit that a program exceeds, or None.

    Args:
        proc: a descriptor of /proc.
        pid: the program's process.
        scratch: the program's directory.
        limits: the program's limits.
        count_threads: whether to check the number of threads, which is necessary if no layer of the sandbox limits it.
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
    """Return the bytes on disk of deleted files that `pid` keeps alive, or None if the process has too many mappings.

    Args:
        proc: a descriptor of /proc.
        pid: the process.
        scratch: the only directory in which the process can create files.
        file_bytes: maximum file size, assumed for files that are mapped but not open.
    """
    tasks = [str(pid)]  # the first thread, which may end before the others
    with contextlib.suppress(OSError), _folder(proc, f"{pid}/task") as folder:
        tasks += os.listdir(folder)
    for task in tasks:
        opened = _open_deleted_files(proc, f"{pid}/task/{task}/fd")
        if opened is not None:
            mapped = _mapped_deleted_files(proc, f"{pid}/task/{task}/maps", scratch)
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


def _open_deleted_files(proc: int, path: str) -> dict[int, int] | None:
    """Return the bytes of each open but deleted file, by inode, or None if no descriptor can be listed."""
    names: list[str] = []
    sizes = {}
    with contextlib.suppress(OSError), _folder(proc, path) as folder:
        names = os.listdir(folder)
        for name in names:
            with contextlib.suppress(OSError):  # the file has been closed in the meantime
                status = os.stat(name, dir_fd=folder)
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    sizes[status.st_ino] = status.st_blocks * 512
    return sizes if names else None


def _mapped_deleted_files(proc: int, path: str, scratch: str) -> set[int] | None:
    """Return the inodes of mapped but deleted files in `scratch`, or None if there are too many mappings to read."""
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
