"""The worker process that checks arguments, one request per line, until its input ends. It imports very little."""

from __future__ import annotations

import json
import resource
import signal
import sys
from typing import Any

from agent_rl.errors import InvalidArgumentsError
from agent_rl.tools.arguments import check_arguments, make_validator

__all__ = ["main"]

_MEMORY_BYTES = 2 << 30
_KEPT_SCHEMAS = 64


def main() -> None:
    """Answer requests from standard input until it ends."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    validators: dict[str, Any] = {}
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, parameters, arguments, limit_s = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, limit_s)  # SIGALRM ends the process, even if its parent is gone
        if parameters not in validators:
            if len(validators) >= _KEPT_SCHEMAS:
                validators.clear()
            validators[parameters] = make_validator(json.loads(parameters))
        try:
            answer = [True, check_arguments(name, validators[parameters], arguments)]
        except (InvalidArgumentsError, MemoryError) as error:
            answer = [False, str(error) or f"the arguments of {name} need too much memory"]
        text = json.dumps(answer)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(text, flush=True)
