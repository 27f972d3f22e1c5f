"""Uses Landlock to limit the files that a process can open, and to block sockets and processes outside its domain.

Landlock does not cover chmod, utime, extended attributes, UDP and pathname unix sockets, so the seccomp filter covers
them. Neither filter covers stat, so the existence, size and times of inaccessible files stay visible.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Sequence
from ctypes import Array, addressof, c_char, c_int, create_string_buffer

from .syscalls import call

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG, _REFER, _TRUNCATE = 1 << 7, 1 << 8, 1 << 13, 1 << 14
_ALL_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of file-system rights by ABI version; version 5 and later versions have 16."""

_READ = _READ_FILE | _READ_DIR
_SCRATCH = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE
_NET_RIGHTS = 0b11  # rights to bind and connect TCP sockets, from ABI 4
_SCOPES = 0b11  # scopes for abstract unix sockets and signals, from ABI 6
_LOG_NOTHING = 0b1
"""LANDLOCK_RESTRICT_SELF_LOG_SAME_EXEC_OFF, from ABI 7: a denied open is not recorded in the machine's audit log."""
_NULL_DEVICE = os.makedev(1, 3)
_DESCRIPTOR_OFFSET = 8  # offset of the descriptor in a rule's attributes


class Ruleset:
    """Prepared rules for read access to some paths; missing or unreachable paths are skipped.

    Each call to `enforce` creates a kernel ruleset, because forks share a ruleset but each child has its own scratch
    directory. Rules for about two hundred paths would take half of a program's time, so all children share one
    ruleset with these paths, and a child's own ruleset contains only the topmost directories above these paths that
    contain no scratch directory. Both rulesets must permit an access.

    Args:
        readable: the readable paths.
        scratches: the parent of all scratch directories.

    Attributes:
        descriptors: descriptors that a process must close after `enforce`.
    """

    def __init__(self, readable: Sequence[str], scratches: str) -> None:
        abi = call("landlock_create_ruleset", 0, 0, 1)  # the ABI version; OSError if the kernel lacks Landlock
        handled = (1 << _ALL_FILE_RIGHTS.get(abi, 16)) - 1
        fields = (handled, _NET_RIGHTS if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
        used = 8 if abi < 4 else 16 if abi < 6 else 24
        self._attributes = create_string_buffer(struct.pack("=QQQ", *fields)[:used], used)
        self._scratch = _attributes(_SCRATCH & handled, -1)
        shared = call("landlock_create_ruleset", addressof(self._attributes), used)
        descriptor = os.open(scratches, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for number, attributes in [*_rules(readable), (descriptor, _attributes(_SCRATCH & handled, descriptor))]:
            call("landlock_add_rule", shared, 1, addressof(attributes))
            os.close(number)
        self._rules = _rules(_topmost(readable, scratches))
        self.descriptors = [shared, *(number for number, _ in self._rules)]
        # `enforce` uses only plain numbers, because a fresh fork copies a page when it first touches an object.
        self._prepared = (
            (addressof(self._attributes), used),
            [addressof(attributes) for _, attributes in self._rules],
            (addressof(self._scratch), c_int.from_buffer(self._scratch, _DESCRIPTOR_OFFSET)),
            _LOG_NOTHING if abi >= 7 else 0,
            shared,
        )

    def enforce(self, scratch: str) -> None:
        """Irreversibly confine the calling process; `scratch` becomes the only directory to which it can write.

        Raises:
            OSError: the kernel refuses, or `scratch` is missing.
        """
        attributes, rules, (scratch_rule, scratch_descriptor), flags, shared = self._prepared
        call("landlock_restrict_self", shared, flags)
        ruleset = call("landlock_create_ruleset", *attributes)
        for rule in rules:
            call("landlock_add_rule", ruleset, 1, rule)
        descriptor = os.open(scratch, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        scratch_descriptor.value = descriptor
        call("landlock_add_rule", ruleset, 1, scratch_rule)
        os.close(descriptor)
        call("landlock_restrict_self", ruleset, flags)
        os.close(ruleset)


def _topmost(paths: Sequence[str], scratches: str) -> list[str]:
    """Return, for each path, its topmost ancestor that does not contain `scratches`.

    The null device stays in the list, because its rule permits writing, which its directory's rule would not permit.
    """
    topmost: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")
        tops = ("/".join(parts[:length]) for length in range(2, len(parts) + 1))
        top = next((top for top in tops if not f"{scratches}/".startswith(f"{top}/")), path)
        topmost[path if path == os.devnull else top] = None
    return list(topmost)


def _rules(paths: Sequence[str]) -> list[tuple[int, Array[c_char]]]:
    """Return a descriptor and attributes for each reachable path."""
    rules = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            rights = _READ if stat.S_ISDIR(status.st_mode) else _READ_FILE
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == _NULL_DEVICE:
                rights |= _WRITE_FILE
            rules.append((descriptor, _attributes(rights, descriptor)))
    return rules


def _attributes(rights: int, descriptor: int) -> Array[c_char]:
    data = struct.pack("=Qi", rights, descriptor)  # struct landlock_path_beneath_attr
    return create_string_buffer(data, len(data))
