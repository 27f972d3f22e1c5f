"""What a test leaves open: descriptors that are new, and still there after a moment.

Other tests' threads and garbage open and close descriptors of the same process at any time: their number says little,
and connections over TCP, of which the sandbox has none, are left out.
"""

import gc
import os
import socket
import time


def descriptors():
    """The open descriptors of this process, as pairs of number and what it refers to; none of TCP."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            if not (target.startswith("socket:") and _is_tcp(int(name))):
                found.add((name, target))
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


def _is_tcp(descriptor):
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        return copy.family in (socket.AF_INET, socket.AF_INET6)
