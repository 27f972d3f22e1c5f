"""What the programs and the sessions of one sandbox share: its loop, its slots, its zygotes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from agent_rl.sandbox.host.pool import Zygotes
from agent_rl.sandbox.host.supervisor import Settings

__all__ = ["HANG_S", "Host", "check_limits"]

HANG_S = 15.0
"""Seconds after a deadline when a zygote that has not said anything is given up."""


class Host:
    """Belongs to the running event loop.

    Args:
        settings: what programs may do.
        kinds: the kinds of zygotes.
        each: zygotes of a kind at most.
        concurrency: programs that run at a time.
        output_bytes: what a program, or a cell, may write.
    """

    def __init__(
        self, settings: Settings, kinds: Mapping[str, tuple[str, ...]], each: int, concurrency: int, output_bytes: int
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = asyncio.Semaphore(concurrency)
        self.zygotes = Zygotes(settings, kinds, each)
        self.output_bytes = output_bytes

    def check_loop(self) -> None:
        """Raise RuntimeError in another event loop than the one that it was opened in."""
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError(
                "a PythonSandbox belongs to the event loop that it was opened in; open one for each loop"
            )


def check_limits(timeout_s: float, memory_mb: int) -> None:
    """Raise ValueError for limits that cannot be meant."""
    if not 0 < timeout_s < 1e7:
        raise ValueError(f"timeout_s must be a positive number of seconds, not {timeout_s!r}")
    if not 0 < memory_mb < 1 << 30:
        raise ValueError(f"memory_mb must be a positive number of MiB, not {memory_mb!r}")
