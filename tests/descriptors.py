"""What a test leaves open: descriptors that are new, and still there after a moment.

Other tests' threads and garbage open and close descriptors of the same process at any time: their number says little.
"""

import gc
import os
import time


def descriptors():
    """The open descriptors of this process, as pairs of number and what it refers to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            continue  # closed since, as that of listdir is
    return found


def left_open(before, within_s=2.0):
    """The descriptors that were not there before and do not go within some seconds."""
    gc.collect()
    end = time.monotonic() + within_s
    left = descriptors() - before
    while left and time.monotonic() < end:
        time.sleep(0.02)
        left &= descriptors()
    return left
