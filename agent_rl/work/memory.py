"""`return_memory`: returns memory that was freed to the system."""

from __future__ import annotations

import ctypes

_LIBRARY = ctypes.CDLL(None)
"""The C library."""


def return_memory() -> None:
    """Return the free pages between pages in use, which the C library does only for those at the end of its heap.

    For a heap of 200 MB, this takes about half a millisecond. A quickstart's trainer then holds 171 MiB instead of 198.
    """
    if hasattr(_LIBRARY, "malloc_trim"):  # only glibc has this function
        _LIBRARY.malloc_trim(0)
