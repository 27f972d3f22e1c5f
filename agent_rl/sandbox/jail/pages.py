"""Making forks of a large process cheaper: its heap in huge pages. Standard library only.

A fork copies one entry for a huge page in place of 512. A child that writes to one gets small pages for that part, so
nothing is copied that would not be copied otherwise.
"""

from __future__ import annotations

import ctypes
import os

__all__ = ["collapse_heap"]

_COLLAPSE = 25  # MADV_COLLAPSE, from Linux 6.1; older kernels refuse it, and nothing is lost
_HUGE_BYTES = 2 << 20
_MAPS = "/proc/self/maps"
_WORTH_BYTES = 16 << 20  # below that the parts that parent and child write to are most of it


def collapse_heap() -> int:
    """Turn the large anonymous mappings of this process into huge pages where the kernel can; returns how many."""
    if os.sysconf("SC_PAGE_SIZE") != 4096 or not os.path.exists(_MAPS):  # no /proc in a namespace of our own
        return 0
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    done = 0
    for start, end in _anonymous():
        first = -(-start // _HUGE_BYTES) * _HUGE_BYTES
        for address in range(first, end - _HUGE_BYTES + 1, _HUGE_BYTES):
            done += advise(address, _HUGE_BYTES, _COLLAPSE) == 0
    return done


def _anonymous() -> list[tuple[int, int]]:
    found = []
    with open(_MAPS, encoding="ascii", errors="replace") as file:
        for line in file:
            addresses, rights, _, _, _, *name = line.split(maxsplit=5)
            start, end = (int(address, 16) for address in addresses.split("-"))
            if rights == "rw-p" and (not name or name[0].strip() == "[heap]") and end - start >= _WORTH_BYTES:
                found.append((start, end))
    return found
