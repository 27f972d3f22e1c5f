"""A loaded machine, without loading more than one core of this one."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

CORE = max(os.sched_getaffinity(0))


@contextmanager
def busy_core(spinners: int = 3) -> Iterator[None]:
    """While this holds, so many processes use all that they can get of `CORE`."""
    command = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(spinners)]
    try:
        for process in processes:
            os.sched_setaffinity(process.pid, {CORE})
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
