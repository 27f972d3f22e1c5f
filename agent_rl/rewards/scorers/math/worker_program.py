"""The program of a worker process: it compares answers with math-verify and sympy, and reads and writes JSON lines.

The program is run as a file, so that it does not import the package, and exits when its standard input ends. The caller
limits the time of a comparison; the program limits its own address space.
"""

import json
import logging
import resource
import signal
import sys
from typing import Any

MEMORY_BYTES = 4 << 30
TIMEOUT_S = 2  # CPU time limit for a parse or comparison, in seconds; it stops only code that a signal can interrupt


def main() -> None:
    """Answer each line `[answer, truth]` with true or false."""
    del sys.path[0]  # removes this file's folder from the path, because its modules would shadow others
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))
    logging.disable()
    from math_verify import parse, verify

    # math-verify limits wall-clock time, which is too strict on a busy machine, so CPU time is limited instead.
    signal.SIGALRM = signal.SIGPROF  # type: ignore[misc]
    signal.alarm = lambda seconds: signal.setitimer(signal.ITIMER_PROF, seconds)  # type: ignore[assignment, return-value]

    def read(text: str) -> Any:
        return parse(f"\\boxed{{{text}}}", parsing_timeout=TIMEOUT_S)

    print('"ready"', flush=True)
    for line in sys.stdin:
        answer, truth = json.loads(line)
        try:
            same = bool(verify(read(truth), read(answer), timeout_seconds=TIMEOUT_S))
        except Exception:  # noqa: BLE001 - sympy may raise anything for a model's text, which is then a wrong answer
            same = False
        print(json.dumps(same), flush=True)


if __name__ == "__main__":
    main()
