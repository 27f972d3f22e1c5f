"""Keeps one sandbox per worker process, which is opened at its first use and closed with the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.sandbox.host.execution import Execution, ExecutionStatus
from agent_rl.sandbox.host.places import PLACES
from agent_rl.sandbox.host.sandbox import PythonSandbox
from agent_rl.work.concurrency import PerLoop

TOOL_CONCURRENCY = PLACES
"""Maximum number of programs that one tool may run concurrently in one worker process."""
UNBOUNDED = 1_000
"""Value of `max_concurrency` for a caller that itself limits its concurrent programs."""

logger = logging.getLogger(__name__)

Key = tuple[tuple[str, ...], int | None, bool]

# Stores the task that keeps each sandbox open, because an event loop has only weak references to its tasks.
_sandboxes: PerLoop[dict[Key, tuple[asyncio.Future[PythonSandbox], asyncio.Task[None]]]] = PerLoop(dict)


async def shared_sandbox(
    *, packages: Sequence[str] = ("numpy", "sympy"), max_concurrency: int | None = None, unsafe: bool = False
) -> PythonSandbox:
    """Return the `PythonSandbox` with these settings that the running event loop shares.

    A separate task closes the sandbox when `asyncio.run` cancels the remaining tasks at its end. If this process ends
    without cancelling its tasks, the sandbox's processes exit too.

    Raises:
        ConfigError: a package is not installed.
    """
    key = (tuple(packages), max_concurrency, unsafe)
    sandboxes = _sandboxes.get()
    if key not in sandboxes:
        ready: asyncio.Future[PythonSandbox] = asyncio.get_running_loop().create_future()
        sandboxes[key] = ready, asyncio.create_task(_keep(key, ready))
    return await asyncio.shield(sandboxes[key][0])


async def _keep(key: Key, ready: asyncio.Future[PythonSandbox]) -> None:
    packages, max_concurrency, unsafe = key
    try:
        make = partial(PythonSandbox, packages=packages, max_concurrency=max_concurrency, unsafe=unsafe)
        async with await asyncio.to_thread(make) as sandbox:  # reads the installed packages
            ready.set_result(sandbox)
            await asyncio.Event().wait()
    except Exception as error:  # the callers that wait for the sandbox get the error
        if ready.done():
            logger.exception("the sandbox could not be closed")
        else:
            ready.set_exception(error)
    finally:
        del _sandboxes.get()[key]


def raise_if_not_run(execution: Execution, key: str) -> None:
    """Raise an error if an execution failed because of the machine or the sandbox.

    Args:
        execution: the outcome.
        key: the configuration key that sets `unsafe`.

    Raises:
        ConfigError: this machine offers no isolation, and `unsafe` is not set.
        UnscoredError: the sandbox failed.
    """
    problem = execution.stderr.strip().removeprefix("sandbox: ")
    if execution.status == ExecutionStatus.REFUSED:
        raise ConfigError(key, problem, "Set it to true only if you trust the programs")
    if execution.status == ExecutionStatus.UNAVAILABLE:
        raise UnscoredError(f"the sandbox failed: {problem}")


async def repeated_if_busy(run: Callable[[], Awaitable[Execution]], limit_s: float) -> Execution:
    """Return the outcome of `run`; repeat once if a timeout does not prove that the program needs `limit_s` seconds.

    Raises:
        UnscoredError: the machine was too busy both times.
    """
    for _ in range(2):
        execution = await run()
        if execution.status != ExecutionStatus.TIMEOUT or execution.own_s > 0.99 * limit_s:
            return execution
    raise UnscoredError(f"the machine is busy: in two tries, a program got {execution.own_s:.3g} of its {limit_s:g} s")
