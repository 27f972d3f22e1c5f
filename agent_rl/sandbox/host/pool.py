"""The zygotes of one sandbox: which one a program is forked from, and a new one for each that died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from agent_rl.sandbox.host.execution import ExecutionStatus, IsolationReport
from agent_rl.sandbox.host.supervisor import NotRun, Settings, Zygote
from agent_rl.sandbox.jail.scratch import sweep

__all__ = ["KINDS", "Zygotes"]

KINDS: Mapping[str, tuple[str, ...]] = {
    "lean": (),
    "numpy": ("numpy", "numpy.random", "numpy.linalg", "numpy.fft"),
    "sympy": ("numpy", "numpy.random", "numpy.linalg", "numpy.fft", "sympy"),
}
"""What each kind of zygote has loaded. A fork copies page tables: plain programs are not forked from a large parent."""

_BUSY = 4
"""Children of one zygote before another of its kind is started."""

logger = logging.getLogger(__name__)


class Zygotes:
    """The zygotes of one sandbox: started when they are needed, several of a kind where there are many cores.

    Args:
        settings: what they may do.
        kinds: the kinds that can be used here.
        each: how many of a kind at most; one process forks one child after the other.
    """

    def __init__(self, settings: Settings, kinds: Mapping[str, tuple[str, ...]], each: int) -> None:
        self._settings = settings
        self._kinds = kinds
        self._each = each
        self._members: dict[str, list[Zygote]] = {kind: [] for kind in kinds}
        self._starts: dict[str, asyncio.Task[Zygote]] = {}
        self._lock = asyncio.Lock()
        self._warned = False
        self.report: IsolationReport | None = None

    def kind_for(self, code: str) -> str:
        """The kind that has loaded what `code` seems to use. Only looks for words: a wrong guess costs milliseconds."""
        if "sympy" in self._kinds and ("sympy" in code or "mpmath" in code):
            return "sympy"
        if "numpy" in self._kinds and any(name in code for name in ("numpy", "scipy", "pandas", "sklearn")):
            return "numpy"
        return "lean"

    def ready(self, kind: str) -> Zygote | None:
        """The least loaded zygote of `kind`, if no other has to be started first."""
        members = self._members[kind]
        if not members:
            return None
        best = members[0] if len(members) == 1 else min(members, key=lambda zygote: zygote.load)
        if not best.alive or (best.load >= _BUSY and len(members) < self._each):
            return None
        return best

    async def get(self, kind: str) -> Zygote:
        """A zygote of `kind`, started if need be.

        Raises:
            NotRun: it could not be started, or this machine offers no isolation.
        """
        ready = self.ready(kind)
        if ready is not None:
            return ready
        start = self._starts.get(kind)
        if start is None or start.done():
            start = self._starts[kind] = asyncio.create_task(self._start(kind))
            start.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, whoever waits
        return await asyncio.shield(start)

    async def _start(self, kind: str) -> Zygote:
        async with self._lock:  # the first one tries out what holds; and one start at a time is kind to the machine
            if self.report is not None:
                self._check_isolation(self.report)
            dead = [zygote for zygote in self._members[kind] if not zygote.alive]
            self._members[kind] = [zygote for zygote in self._members[kind] if zygote.alive]
            for zygote in dead:
                await zygote.stop()
            layers = None if self.report is None else list(self.report.layers)
            zygote, greeting = await Zygote.start(self._kinds[kind], self._settings, layers)
            if self.report is None:
                self.report = _report_of(greeting["report"])
                if not self.report.isolated:
                    if not self._settings.unsafe:
                        await zygote.stop()
                    self._check_isolation(self.report)
            self._members[kind].append(zygote)
            return zygote

    def _check_isolation(self, report: IsolationReport) -> None:
        if report.isolated:
            return
        missing = "".join(f"\n- {layer}: {why}" for layer, why in report.missing.items())
        if not self._settings.unsafe:
            text = f"this machine does not offer enough isolation. Missing:{missing}\n"
            raise NotRun(ExecutionStatus.REFUSED, f"{text}Provide it, or accept the risk with unsafe=True.")
        if not self._warned:
            self._warned = True
            logger.warning("unsafe=True: programs run without sufficient isolation. Missing:%s", missing)

    async def stop(self) -> None:
        """Stop all, and whatever they run."""
        for start in self._starts.values():
            start.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        members = [zygote for kind in self._members.values() for zygote in kind]
        killed = [zygote for zygote in members if not zygote.alive]
        await asyncio.gather(*(zygote.stop() for zygote in members))
        self._members = {kind: [] for kind in self._kinds}
        in_namespace = self.report is not None and "namespace" in self.report.layers  # where a root cannot be removed
        if killed or in_namespace:
            sweep(self._settings.scratch_parent)


def _report_of(found: Mapping[str, Any]) -> IsolationReport:
    return IsolationReport(found["isolated"], tuple(found["layers"]), found["missing"], found["acts"])
