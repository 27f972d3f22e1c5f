"""`return_memory`: returns memory that was freed to the system."""

from __future__ import annotations

import ctypes

_LIBRARY = ctypes.CDLL(None)
"""The C library."""


def return_memory() -> None:
    """Return the free pages between pages in use, which the C library does only for those at the end of its heap.

    This takes less than a millisecond per 100 MB of heap. Without it, the heap of a trainer keeps growing, because each
    of its largest allocations leaves free pages that smaller allocations then divide.
    """
    if hasattr(_LIBRARY, "malloc_trim"):  # only glibc has this function
        _LIBRARY.malloc_trim(0)
