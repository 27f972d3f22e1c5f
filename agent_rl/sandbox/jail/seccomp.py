"""A classic BPF filter for seccomp that allows the system calls that a confined Python program may use.

Unlisted calls fail with EPERM, so that a program sees a PermissionError. Calls that are newer than this table, and
calls that C libraries probe, fail with ENOSYS. A call for another architecture or for the x32 ABI kills the process.
Only numbers and scalar arguments can be checked, so Landlock or the mount namespace checks the *paths* of a call.
Mapping executable memory is allowed, because a program could load native code anyway; the filter applies to it too.
"""

from __future__ import annotations

import errno
import struct
from ctypes import addressof, c_uint32, create_string_buffer

from .syscalls import AUDIT_ARCHES, MACHINE, UNRESTRICTED, call, numbers_of

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _ENOTTY = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS, _ERRNO | errno.ENOTTY
_LOAD, _JUMP, _EQUAL, _GREATER_EQUAL, _ANY_BIT, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x54, 0x06
_LAST_KNOWN = 462  # mseal, Linux 6.10
_OWN_PID = 0x7FFF_0001  # placeholder for the child's pid until `Filter.install`; no pid is that large
_ABSENT = ("clone3", "openat2")  # reported as absent, so that C libraries use clone and openat

_THREAD_FLAGS = (0x3D0F00, 0x7D0F00)  # the exact flags that pthread_create uses in glibc and in musl
_FCNTL = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)
"""fcntl commands for duplication, flags, pipe sizes and SQLite's locks, which, unlike flock's, need write access.

F_SETOWN and F_SETSIG are left out, because they make the kernel send signals to other processes.
"""
_SOCKET_OPTIONS = (2, 3, 4, 7, 8, 13, 20, 21, 30, 38, 39)
"""Options for getsockopt, such as the type, error, buffer sizes and timeouts, but none about the process at the other
end (SO_PEERPIDFD)."""
_IOCTL = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""TCGETS, TCGETS2, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX."""
_PRCTL = (2, 3, 15, 16, 21, 23, 27, 30, 39, 0x53564D41)
"""PR_GET_*: death signal, dumpable, seccomp, bounding set, securebits, slack, no_new_privs; the name; PR_SET_VMA."""
_TRUNCATE, _ACCESS_MODE, _UNNAMED = 0o1000, 0o3, 0o20000000
_OUT_OF_BAND = 0x1
_CLOSE_RANGE = (0, 4)
"""close_range's flags 0 and CLOEXEC, but not UNSHARE, which would give a thread its own descriptors and limits."""

_Code = list[tuple[int, int, int, int]]  # (operation, jump offset if true, jump offset if false, constant)
_YES: _Code = [(_RETURN, 0, 0, _ALLOW)]
_NO: _Code = [(_RETURN, 0, 0, _EPERM)]


def program(machine: str) -> bytes:
    """Return the filter for `machine` ("x86_64" or "aarch64"), with a placeholder for the process's pid."""
    numbers = numbers_of(machine)
    leaves = {numbers[name]: _YES for name in UNRESTRICTED if name in numbers}
    leaves |= {numbers[name]: [(_RETURN, 0, 0, _ENOSYS)] for name in _ABSENT}
    leaves |= {numbers[name]: code for name, code in _conditional_calls().items() if name in numbers}
    starts: list[tuple[int, _Code]] = []
    for number in range(_LAST_KNOWN + 1):
        code = leaves.get(number, _NO)
        if not starts or starts[-1][1] is not code:
            starts.append((number, code))
    starts.append((_LAST_KNOWN + 1, [(_RETURN, 0, 0, _ENOSYS)]))
    if machine == "x86_64":
        starts.append((0x40000000, [(_RETURN, 0, 0, _KILL)]))  # x32
    code = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, AUDIT_ARCHES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        *_search(starts),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


class Filter:
    """This machine's filter, built once; `install` inserts the process's pid."""

    def __init__(self) -> None:
        code = program(MACHINE)
        self._code = create_string_buffer(code, len(code))
        pattern = struct.pack("=I", _OWN_PID)
        offsets = [at + 4 for at in range(0, len(code), 8) if code[at + 4 : at + 8] == pattern]
        self._pids = [c_uint32.from_buffer(self._code, offset) for offset in offsets]
        self._header = create_string_buffer(struct.pack("=HxxxxxxQ", len(code) // 8, addressof(self._code)), 16)

    def install(self, pid: int) -> None:
        """Irreversibly filter the calls of this process, whose pid is `pid`; no_new_privs must be set.

        Raises:
            OSError: the kernel refuses.
        """
        for place in self._pids:
            place.value = pid
        call("seccomp", 1, 0, addressof(self._header))


def _search(starts: list[tuple[int, _Code]]) -> _Code:
    """Return a binary search for the interval that contains a call's number; each leaf allows or denies the call."""
    if len(starts) == 1:
        return starts[0][1]
    middle = len(starts) // 2
    below, above = _search(starts[:middle]), _search(starts[middle:])
    if len(below) <= 255:
        return [(_GREATER_EQUAL, len(below), 0, starts[middle][0]), *below, *above]
    return [(_GREATER_EQUAL, 0, 1, starts[middle][0]), (_JUMP, 0, 0, len(below)), *below, *above]


def _conditional_calls() -> dict[str, _Code]:
    """Return the filter's code for calls that are allowed only with some arguments."""
    return {
        "open": _open_rules(1),
        "openat": _open_rules(2),
        "clone": _one_of(0, _THREAD_FLAGS),
        "fcntl": _one_of(1, _FCNTL),
        "getsockopt": _one_of(2, _SOCKET_OPTIONS),
        "ioctl": _one_of(1, _IOCTL, _ENOTTY),
        "prctl": _one_of(0, _PRCTL),
        "kill": _one_of(0, (_OWN_PID,)),
        "tgkill": _one_of(0, (_OWN_PID,)),
        "prlimit64": _one_of(0, (0, _OWN_PID)),
        "close_range": _one_of(2, _CLOSE_RANGE),
        "sendto": _sendto_rules(),
        "socketpair": _socketpair_rules(),
    }


def _low(argument: int) -> int:
    return 16 + 8 * argument  # offset of the low half in seccomp_data.args; both architectures are little-endian


def _open_rules(argument: int) -> _Code:
    """Deny truncation through a descriptor without write access, which early versions of Landlock miss.

    Access mode 3 is denied because these versions do not check its descriptor, which can neither read nor write. Files
    without a name (O_TMPFILE) are denied because they leave no trace in a directory.
    """
    mode = [(_AND, 0, 0, _ACCESS_MODE), (_EQUAL, 3, 0, _ACCESS_MODE), (_EQUAL, 0, 3, 0)]
    truncating = [(_LOAD, 0, 0, _low(argument)), (_ANY_BIT, 0, 1, _TRUNCATE)]
    return [(_LOAD, 0, 0, _low(argument)), (_ANY_BIT, 5, 0, _UNNAMED), *mode, *truncating, *_NO, *_YES]


def _one_of(argument: int, values: tuple[int, ...], otherwise: int = _EPERM) -> _Code:
    """Allow the given values of an argument; only the low 32 bits are compared, because the kernel reads no others."""
    tests = [(_EQUAL, len(values) - index, 0, value) for index, value in enumerate(values)]
    return [(_LOAD, 0, 0, _low(argument)), *tests, (_RETURN, 0, 0, otherwise), *_YES]


def _sendto_rules() -> _Code:
    """Allow sending to the connected end, but not to an address or as out-of-band data, which has had kernel bugs."""
    flags, address = _low(3), _low(4)
    return [
        (_LOAD, 0, 0, flags), (_ANY_BIT, 4, 0, _OUT_OF_BAND),
        (_LOAD, 0, 0, address), (_EQUAL, 0, 2, 0), (_LOAD, 0, 0, address + 4), (_EQUAL, 1, 0, 0), *_NO, *_YES,
    ]  # fmt: skip


def _socketpair_rules() -> _Code:
    """Allow only AF_UNIX streams, because a datagram socket from a pair can send to any address."""
    return [
        (_LOAD, 0, 0, _low(0)), (_EQUAL, 0, 3, 1),
        (_LOAD, 0, 0, _low(1)), (_AND, 0, 0, 0xF), (_EQUAL, 1, 0, 1), *_NO, *_YES,
    ]  # fmt: skip
