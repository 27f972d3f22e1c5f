"""What the programs and sessions of one open sandbox share: its event loop, its places, and its zygotes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus, IsolationReport
from agent_rl.sandbox.host.places import Places
from agent_rl.sandbox.host.supervisor import NotRun, Zygote
from agent_rl.sandbox.jail.protocol import ZygoteSettings
from agent_rl.sandbox.jail.scratch import sweep

__all__ = ["KILLER", "KINDS", "Pool", "check_limits"]

KINDS: Mapping[str, tuple[str, ...]] = {
    "lean": (),
    "numpy": ("numpy", "numpy.random", "numpy.linalg", "numpy.fft"),
    "sympy": ("numpy", "numpy.random", "numpy.linalg", "numpy.fft", "sympy"),
    "reasoning_gym": ("reasoning_gym",),  # three seconds to import
    "pytest": ("pytest", "_pytest.helpconfig", "_pytest.skipping", "_pytest.unittest", "pdb"),
}
"""What each kind of zygote has loaded. A fork copies page tables, so plain programs get a small parent."""

KILLER = Execution(
    ExecutionStatus.KILLED, stderr="sandbox: the program was ended with the process that ran it, alone\n"
)
"""The outcome of a program that ran where nothing keeps it from killing its parent, and whose parent died."""

_WORDS = {
    "reasoning_gym": ("reasoning_gym",),
    "sympy": ("sympy", "mpmath"),
    "numpy": ("numpy", "scipy", "pandas", "sklearn"),
    "pytest": ("pytest", "unittest", "def test", "class Test"),
}
_PAUSES_S = (0.3, 0.6, 1.2, 2.4)  # between attempts to start one
_BUSY = 4
"""Children of one zygote before another of its kind is started."""

logger = logging.getLogger(__name__)


class Pool:
    """Zygotes of one event loop: started when they are needed, several of a kind where there are many cores.

    Args:
        settings: what they may do.
        places: of the programs that run at a time; closed with the pool.
        output_bytes: what a program, or a cell, may write.
    """

    def __init__(self, settings: ZygoteSettings, places: Places, output_bytes: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = places
        self.output_bytes = output_bytes
        self.report: IsolationReport | None = None
        self._settings = settings
        self._each = min(4, 1 + len(os.sched_getaffinity(0)) // 8)  # one process forks one child after the other
        usable = [
            kind for kind in KINDS if all(name.partition(".")[0] in settings.package_files for name in KINDS[kind])
        ]
        self._members: dict[str, list[Zygote]] = {kind: [] for kind in usable}
        self._alone: dict[Zygote, str] = {}
        self._starts: dict[str, asyncio.Task[Zygote]] = {}
        self._lock = asyncio.Lock()
        self._warned = False

    def check_loop(self) -> None:
        """Raise RuntimeError in another event loop than the one that it was opened in."""
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError(
                "a PythonSandbox belongs to the event loop that it was opened in; open one for each loop"
            )

    def kind_for(self, code: str) -> str:
        """The kind that has loaded what `code` seems to use. Only looks for words: a wrong guess costs milliseconds."""
        for kind, words in _WORDS.items():
            if kind in self._members and any(word in code for word in words):
                return kind
        return "lean"

    def ready(self, kind: str) -> Zygote | None:
        """The least loaded zygote of `kind`, if no other has to be started first."""
        members = self._members[kind]
        best = min(members, key=lambda zygote: zygote.load, default=None)
        if best is None or not best.alive or (best.load >= _BUSY and len(members) < self._each):
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
            start.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # retrieved, even if nobody waits
        return await asyncio.shield(start)

    @property
    def isolated(self) -> bool:
        """Whether programs are kept from killing their zygote."""
        return self.report is not None and self.report.isolated

    async def start_alone(self, kind: str) -> Zygote:
        """Another zygote, for a program that may have killed its own; nobody else is given it before `share`.

        Raises:
            NotRun: it could not be started.
        """
        layers = None if self.report is None else self.report.layers
        zygote, _ = await _started(replace(self._settings, preload=KINDS[kind], layers=layers))
        self._alone[zygote] = kind
        return zygote

    def share(self, zygote: Zygote) -> None:
        """Give a zygote of `start_alone` to all; nothing happens for another one, or again."""
        kind = self._alone.pop(zygote, None)
        if kind is not None:
            self._members[kind].append(zygote)

    async def _start(self, kind: str) -> Zygote:
        async with self._lock:  # the first one probes the machine; and several starts at a time would overload it
            self._check_isolation()
            members = self._members[kind]
            for zygote in [zygote for zygote in members if not zygote.alive]:
                members.remove(zygote)
                await zygote.stop()
            layers = None if self.report is None else self.report.layers
            zygote, greeting = await _started(replace(self._settings, preload=KINDS[kind], layers=layers))
            if self.report is None:
                found = greeting["report"]
                self.report = IsolationReport(**{**found, "layers": tuple(found["layers"])})
                if not self.report.isolated and not self._settings.unsafe:
                    await zygote.stop()
                self._check_isolation()
            members.append(zygote)
            return zygote

    def _check_isolation(self) -> None:
        if self.report is None or self.report.isolated:
            return
        missing = "".join(f"\n- {layer}: {why}" for layer, why in self.report.missing.items())
        if not self._settings.unsafe:
            text = f"this machine does not offer enough isolation. Missing:{missing}\n"
            raise NotRun(f"{text}Provide it, or accept the risk with unsafe=True.", ExecutionStatus.REFUSED)
        if not self._warned:
            self._warned = True
            logger.warning("unsafe=True: programs run without sufficient isolation. Missing:%s", missing)

    async def stop(self) -> None:
        """Stop all zygotes and the programs that they run."""
        self.slots.close()
        for start in self._starts.values():
            start.cancel()
        await asyncio.gather(*self._starts.values(), return_exceptions=True)
        members = [*self._alone, *(zygote for kind in self._members.values() for zygote in kind)]
        killed = [zygote for zygote in members if not zygote.alive]
        await asyncio.gather(*(zygote.stop() for zygote in members))
        self._alone.clear()
        for kind in self._members.values():
            kind.clear()
        in_namespace = self.report is not None and "namespace" in self.report.layers  # where a root cannot be removed
        if killed or in_namespace:
            sweep(self._settings.scratch_parent)


async def _started(settings: ZygoteSettings) -> tuple[Zygote, Any]:
    """A zygote and its greeting; tried again while a program may have taken what the machine lacks.

    Raises:
        NotRun: it could not be started.
    """
    for pause_s in _PAUSES_S:
        try:
            return await Zygote.start(settings)
        except NotRun as error:
            if not error.may_pass:
                raise
        await asyncio.sleep(pause_s)
    return await Zygote.start(settings)


def check_limits(timeout_s: float, memory_mb: int) -> None:
    """Raise ValueError for limits that make no sense."""
    if not 0 < timeout_s < 1e7:
        raise ValueError(f"timeout_s must be a positive number of seconds, not {timeout_s!r}")
    if not 0 < memory_mb < 1 << 30:
        raise ValueError(f"memory_mb must be a positive number of MiB, not {memory_mb!r}")
