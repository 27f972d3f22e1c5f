"""`checked`: coerces and validates the arguments of a call without blocking other trajectories.

With most schemas the time grows linearly with the arguments, and small arguments are checked in the event loop. A
regular expression can take forever for thirty characters, and references can take much longer than their length
suggests: those, and large arguments, are checked in a worker process, which is killed after the time limit.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from agent_rl.errors import InvalidArgumentsError, ToolTimeoutError
from agent_rl.sandbox.workers import WorkerDied, Workers, WorkerTimeout
from agent_rl.tools.arguments import check_arguments
from agent_rl.tools.slot import shown
from agent_rl.tools.spec import ToolSpec
from agent_rl.work.concurrency import gate, in_thread

__all__ = ["CHECK_S", "MAX_SIZE", "checked"]

CHECK_S = 5.0
"""Time limit for one check, in seconds; a tool's own limit may be shorter."""
MAX_SIZE = 1_000_000
"""Maximum size of a call's arguments, in characters of JSON."""
_SMALL = 10_000  # characters; larger arguments go to a worker process
_AT_ONCE = 8
# Skips the rest of the package, which takes three times as long to import.
_START = """
import sys, types
package = types.ModuleType("agent_rl.tools")
package.__path__ = [sys.argv[1]]
sys.modules[package.__name__] = package
from agent_rl.tools.argument_worker import main
main()
"""
_workers = Workers("checks tool arguments", [sys.executable, "-c", _START, str(Path(__file__).parent)])


async def checked(spec: ToolSpec, arguments: Any, limit_s: float) -> dict[str, Any]:
    """Return a copy of the arguments, coerced to the types of the schema where that loses nothing.

    Args:
        spec: the tool.
        arguments: the policy's arguments, parsed from JSON.
        limit_s: time limit of one call of the tool, in seconds.

    Raises:
        InvalidArgumentsError: an argument is wrong; the text names it and what was expected.
        ToolTimeoutError: the check takes too long.
        UnscoredError: no worker process can be started.
    """
    limit_s = min(limit_s, CHECK_S)
    problem = f"{spec.name} did not finish within {limit_s:g} s: checking its arguments takes too long"
    try:
        size = len(json.dumps(arguments, ensure_ascii=False, default=str))
        if size > MAX_SIZE:
            raise InvalidArgumentsError(f"the arguments of {spec.name} are too large: {MAX_SIZE:,} characters are read")
        if spec.is_checked_quickly and size <= _SMALL:
            return check_arguments(spec.name, spec.validator, arguments)
        request = [spec.name, json.dumps(spec.parameters, default=str), arguments, limit_s]
        async with gate("agent_rl.tools.argument_check", _AT_ONCE):
            is_valid, result = await in_thread(_workers.ask, request, limit_s)
    except WorkerTimeout:
        raise ToolTimeoutError(problem) from None
    except WorkerDied as died:
        if died.status == -signal.SIGALRM:
            raise ToolTimeoutError(problem) from None
        raise InvalidArgumentsError(f"the arguments of {spec.name} cannot be checked: {died}") from None
    except RecursionError:
        raise InvalidArgumentsError(f"invalid arguments for {spec.name}: nested too deeply") from None
    except (TypeError, ValueError) as error:  # not expressible in JSON, such as a number with thousands of digits
        raise InvalidArgumentsError(f"the arguments of {spec.name} cannot be read: {shown(error)}") from None
    if not is_valid:
        raise InvalidArgumentsError(result)
    coerced: dict[str, Any] = result
    return coerced
