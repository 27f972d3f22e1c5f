"""Confines the calling process with limits, a throwaway uid, fewer privileges, Landlock and seccomp, in that order.

The zygote checks what these layers do not limit: the threads of a child without its own uid, the number and total size
of files in the scratch directory, and wall-clock time.
"""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import struct
from ctypes import Array, addressof, c_char, create_string_buffer
from dataclasses import dataclass

from .landlock import Ruleset
from .namespace import hide_neighbours
from .seccomp import Filter
from .syscalls import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, call

MAX_THREADS = 64
"""Maximum number of threads of a child; the kernel enforces the limit if each child has a separate uid."""
MAX_OPEN_FILES = 64
STACK_BYTES = 8 << 20

_PR_CAPBSET_DROP, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _CLEAR_ALL = 24, 28, 38, 47, 4
_SECUREBITS = 0b1110_1111  # no root, no setuid fix-up, no ambient raise, keep-caps off; all locked
_CAP_CHOWN, _CAP_SETGID, _CAP_SETUID, _CAP_SETPCAP = 0, 6, 7, 8
_CAP_VERSION_3 = 0x20080522
_PREFERRED_UID = 0x7000_0000  # above every uid range that distributions assign
_PID_RANGE = 1 << 22  # the kernel's largest pid_max
_SMALLEST_RANGE = 1 << 15
_FIXED_LIMITS = {
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_MEMLOCK: 0,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_STACK: STACK_BYTES,
}


@dataclass(frozen=True)
class Plan:
    """The layers to use, the paths that a child may read, and the parent of the scratch directories.

    The layer "namespace" means that the process has already called `enter_namespace`.
    """

    layers: frozenset[str]
    readable: tuple[str, ...]
    scratches: str


class Confinement:
    """The prepared confinement, created once in the forking process; `apply` confines each forked child.

    The constructor also restricts the calling process, and its children inherit these restrictions: no core dumps, no
    locked memory, a stack of `STACK_BYTES`, no new privileges, no supplementary groups, an empty capability bounding
    set, and no dumpable flag. The process keeps its capabilities.

    Attributes:
        plan: the layers and paths.
        descriptors: open descriptors that `apply` needs; a child must close them afterwards.
    """

    def __init__(self, plan: Plan) -> None:
        """Prepare the layers of the plan.

        Raises:
            OSError: this machine lacks a layer of the plan; the error names the layer.
        """
        self.plan = plan
        layer = "privileges"
        try:
            effective = _effective_capabilities()
            layer = "uid"
            ids = _throw_away_ids(effective) if "uid" in plan.layers else None
            layer = "privileges"
            _restrict_parent(effective)
            layer = "landlock"
            ruleset = Ruleset(plan.readable, plan.scratches) if "landlock" in plan.layers else None
            layer = "limits"
            own_bytes = _address_space()
        except OSError as error:
            raise OSError(error.errno, f"{layer}: {error.strerror}") from error
        self.descriptors = ruleset.descriptors if ruleset else []
        no_capabilities = _capability_header(), create_string_buffer(24)
        self._kept = no_capabilities  # keeps the buffers alive, because `apply` uses their addresses
        # The data for `apply` is in one tuple, because a fresh fork copies a page when it first touches an object.
        # The first lookup of an attribute would copy two or three pages.
        self._prepared = (
            os.getpid(),
            own_bytes,
            ids,
            tuple(map(addressof, no_capabilities)),
            ruleset.enforce if ruleset else None,
            Filter().install if "seccomp" in plan.layers else None,
        )

    def apply(self, *, memory_bytes: int, file_bytes: int, scratch: str, cpu_s: float) -> None:
        """Irreversibly confine the calling process, which must be a fresh fork with one thread.

        Args:
            memory_bytes: limit on the address space beyond the parent's size at construction, in bytes.
            file_bytes: size limit for each file, in bytes.
            scratch: the writable directory, with mode 0700. If the child has its own uid, this uid becomes the
                directory's owner; everybody must be able to search the parent directories.
            cpu_s: CPU seconds after which the kernel kills the child, up to one second late; only a backstop.

        Raises:
            OSError: a layer failed; the error names the layer, and the process must exit.
        """
        parent, own_bytes, ids, no_capabilities, enforce, install = self._prepared
        layer = "session"
        try:
            os.setsid()
            if "namespace" in self.plan.layers:
                layer = "namespace"
                hide_neighbours(scratch, self.plan.readable)
            layer = "limits"
            _lower(resource.RLIMIT_AS, own_bytes + memory_bytes)
            _lower(resource.RLIMIT_FSIZE, file_bytes)
            _lower(resource.RLIMIT_CPU, int(cpu_s) + 1)
            if ids is not None:
                layer = "uid"
                _change_ids(*ids, scratch)
            layer = "privileges"
            call("capset", *no_capabilities)
            # The kernel resets both attributes when ids change, so they are set again.
            # A child with the parent's uid stays dumpable, so that the parent can see which files the child has open.
            call("prctl", PR_SET_DUMPABLE, ids is None)
            call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                raise ProcessLookupError(errno.ESRCH, "the parent has exited")
            if enforce is not None:
                layer = "landlock"
                enforce(scratch)
            layer = "limits"
            _lower(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
            if install is not None:
                layer = "seccomp"
                install(os.getpid())
        except OSError as error:
            raise OSError(error.errno, f"{layer}: {error.strerror}") from error


def _change_ids(uids: tuple[int, int], gids: tuple[int, int], scratch: str) -> None:
    pid = os.getpid()
    uid, gid = uids[0] + pid % uids[1], gids[0] + pid % gids[1]
    _lower(resource.RLIMIT_NPROC, MAX_THREADS)
    os.chown(scratch, uid, gid, follow_symlinks=False)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _address_space() -> int:
    """Return the size of this process's address space, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _lower(number: int, value: int) -> None:
    hard = resource.getrlimit(number)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(number, (bound, bound))


def _restrict_parent(effective: int) -> None:
    for number, value in _FIXED_LIMITS.items():
        _lower(number, value)
    if effective >> _CAP_SETGID & 1 and _may_set_groups():
        os.setgroups([])
    if effective >> _CAP_SETPCAP & 1:  # a process without CAP_SETPCAP has no capabilities to drop
        _empty_bounding_set()
        call("prctl", _PR_SET_SECUREBITS, _SECUREBITS)
    call("prctl", _PR_CAP_AMBIENT, _CLEAR_ALL)
    call("prctl", _PR_SET_NO_NEW_PRIVS, 1)
    call("prctl", PR_SET_DUMPABLE, 0)


def _empty_bounding_set() -> None:
    for capability in itertools.count():
        try:
            call("prctl", _PR_CAPBSET_DROP, capability)
        except OSError:
            if capability > _CAP_SETPCAP:  # the number is beyond the kernel's last capability
                return
            raise


def _capability_header() -> Array[c_char]:
    return create_string_buffer(struct.pack("=Ii", _CAP_VERSION_3, 0), 8)


def _effective_capabilities() -> int:
    header, data = _capability_header(), create_string_buffer(24)
    call("capget", addressof(header), addressof(data))
    low, high = struct.unpack_from("=I8xI", data)
    return int(low | high << 32)


def _may_set_groups() -> bool:
    """Whether this user namespace permits setgroups; the namespace of an unprivileged user does not."""
    try:
        with open("/proc/self/setgroups", encoding="ascii") as file:
            return file.read().strip() == "allow"
    except OSError:  # /proc is missing, because `enter_namespace` ran and denied setgroups
        return False


def _throw_away_ids(effective: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the ranges (start, size) of user and group ids.

    Raises:
        PermissionError: the process has no right to change to these ids.
    """
    if not all(effective >> capability & 1 for capability in (_CAP_CHOWN, _CAP_SETGID, _CAP_SETUID)):
        raise PermissionError(errno.EPERM, "the process has no right to change its user id")
    if not _may_set_groups():
        raise PermissionError(errno.EPERM, "the process has no right to drop its groups")
    return _id_range("uid"), _id_range("gid")


def _id_range(kind: str) -> tuple[int, int]:
    with open(f"/proc/self/{kind}_map", encoding="ascii") as file:
        extents = [(int(line.split()[0]), int(line.split()[2])) for line in file]
    for start, size in extents:
        if start <= _PREFERRED_UID and start + size >= _PREFERRED_UID + _PID_RANGE:
            return _PREFERRED_UID, _PID_RANGE
    start, size = max(extents, key=lambda extent: extent[1])
    if size < _SMALLEST_RANGE:
        raise PermissionError(errno.EPERM, f"this user namespace maps only {size} {kind}s")
    return start + size // 2, size // 2
