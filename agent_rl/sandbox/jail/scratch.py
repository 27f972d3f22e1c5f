"""The directories that programs may write to: made, measured, emptied, and removed after their owner was killed.

A zygote owns one root with a locked file in it; the lock falls when the zygote and its children are gone, whatever
ended them, and then `sweep` removes the root.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat

__all__ = ["ScratchRoot", "measure", "remove_tree", "sweep", "touched"]

_PREFIX = "agent_rl-sandbox-"
_LOCK = "lock"
_MAX_VANISHED = 20  # times that a directory is gone between being listed and being read: it is moved all the time
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


def measure(path: str, max_bytes: int, max_files: int) -> tuple[int, int]:
    """Bytes on disk and number of files below `path`; counting stops once either is beyond its limit.

    Directories that are nested deeper than `_MAX_DEPTH` count as too many files.
    """
    size = count = vanished = 0
    folders = [(path, 0)]
    while folders and size <= max_bytes and count <= max_files:
        folder, depth = folders.pop()
        if depth > _MAX_DEPTH:
            return size, max_files + 1
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        size += status.st_blocks * 512
                        count += 1
                        if stat.S_ISDIR(status.st_mode):
                            folders.append((entry.path, depth + 1))
                    if count > max_files:
                        break
        except FileNotFoundError:  # removed, or moved to where it would be missed: once more from the beginning
            size, count, vanished, folders = 0, 0, vanished + 1, [(path, 0)]
            if vanished > _MAX_VANISHED:
                return size, max_files + 1
        except OSError:  # its path is too long, or it may not be read: made so that nobody counts what is in it
            return size, max_files + 1
    return size, count


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
