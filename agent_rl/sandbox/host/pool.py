"""The event loop, places and zygotes that the programs and sessions of one open sandbox share."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from agent_rl.sandbox.host.execution import Execution, ExecutionStatus, IsolationReport
from agent_rl.sandbox.host.places import Places
from agent_rl.sandbox.host.supervisor import Lost, NotRun, Zygote
from agent_rl.sandbox.jail.protocol import ZygoteSettings
from agent_rl.sandbox.jail.scratch import sweep

KINDS: Mapping[str, tuple[str, ...]] = {
    "lean": (),
    "numpy": ("numpy", "numpy.random", "numpy.linalg", "numpy.fft"),
    "sympy": ("numpy", "numpy.random", "numpy.linalg", "numpy.fft", "sympy"),
    "reasoning_gym": ("reasoning_gym",),  # reasoning_gym takes three seconds to import
    "pytest": ("pytest", "_pytest.helpconfig", "_pytest.skipping", "_pytest.unittest", "pdb"),
}
"""Modules that each kind of zygote loads. A fork copies page tables, so plain programs get a small zygote."""

KILLER = Execution(
    ExecutionStatus.KILLED, stderr="sandbox: the program was ended, because the process that ran it died again\n"
)
"""Outcome of a program whose parent died, on a machine where a program can kill its parent."""
LOST = Execution(ExecutionStatus.UNAVAILABLE, stderr="sandbox: its process died\n")
"""Outcome of a program whose zygote died through no fault of the program."""

_WORDS = {
    "reasoning_gym": ("reasoning_gym",),
    "sympy": ("sympy", "mpmath"),
    "numpy": ("numpy", "scipy", "pandas", "sklearn"),
    "pytest": ("pytest", "unittest", "def test", "class Test"),
}
_PAUSES_S = (0.3, 0.6, 1.2, 2.4)  # pauses between attempts to start a zygote, in seconds
_BUSY = 4
"""If a zygote has at least this many children, another zygote of its kind is started."""

logger = logging.getLogger(__name__)


class Pool:
    """The zygotes of one event loop, which start on demand; machines with many cores get several of a kind.

    Args:
        settings: the zygotes' settings.
        places: places for running programs; the pool closes them when it stops.
        output_bytes: maximum output of a program or a cell, in bytes.
    """

    def __init__(self, settings: ZygoteSettings, places: Places, output_bytes: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = places
        self.output_bytes = output_bytes
        self.report: IsolationReport | None = None
        self._settings = settings
        self._max_per_kind = min(4, 1 + len(os.sched_getaffinity(0)) // 8)  # more zygotes fork more children at once
        usable = [
            kind for kind in KINDS if all(name.partition(".")[0] in settings.package_files for name in KINDS[kind])
        ]
        self._members: dict[str, list[Zygote]] = {kind: [] for kind in usable}
        self._alone: set[Zygote] = set()  # each runs one program that may have killed its previous zygote
        self._lock = asyncio.Lock()
        self._is_closed = self._warned = False

    def check_loop(self) -> None:
        """Raise RuntimeError if the running event loop is not the one that opened this pool."""
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError("a PythonSandbox works only in the event loop that opened it; open one per event loop")

    def kind_for(self, code: str) -> str:
        """Guess the suitable kind of zygote from the words in `code`; a wrong guess costs only milliseconds."""
        for kind, words in _WORDS.items():
            if kind in self._members and any(word in code for word in words):
                return kind
        return "lean"

    def ready(self, kind: str) -> Zygote | None:
        """Return the least loaded zygote of `kind`, or None if another zygote has to be started first."""
        members = [zygote for zygote in self._members[kind] if zygote not in self._alone]
        best = min(members, key=lambda zygote: zygote.load, default=None)
        if best is None or not best.alive or (best.load >= _BUSY and len(members) < self._max_per_kind):
            return None
        return best

    async def get(self, kind: str, *, alone: bool = False) -> Zygote:
        """Return a zygote of `kind`, started if necessary; with `alone`, start one that no other program can get yet.

        Raises:
            NotRun: the zygote cannot start, or this machine offers no isolation.
        """
        async with self._lock:  # the first start probes the machine, and concurrent starts would overload it
            if not alone and (ready := self.ready(kind)) is not None:
                return ready
            members = self._members[kind]
            for dead in [zygote for zygote in members if not zygote.alive]:
                members.remove(dead)
                await dead.stop()
            zygote = await self._start(kind)
            members.append(zygote)
            if alone:
                self._alone.add(zygote)
            return zygote

    async def attempt(self, kind: str, run: Callable[[Zygote], Awaitable[Execution]]) -> Execution:
        """Return the outcome of `run` with a zygote of `kind`; if the zygote dies too early, retry with another zygote.

        If programs can kill their zygote, a program whose zygote died runs again alone, and fails if that zygote
        dies too.
        """
        suspect = False
        for _ in range(2):
            try:
                zygote = (None if suspect else self.ready(kind)) or await self.get(kind, alone=suspect)
                try:
                    return await run(zygote)
                finally:
                    self._alone.discard(zygote)
            except NotRun as error:
                return error.execution
            except Lost as lost:
                if lost.running and (suspect or self.isolated):
                    return KILLER if suspect else LOST
                suspect = lost.running
        return LOST

    @property
    def isolated(self) -> bool:
        """Whether the isolation prevents programs from killing their zygote."""
        return self.report is not None and self.report.isolated

    async def _start(self, kind: str) -> Zygote:
        if self._is_closed:
            raise NotRun("the sandbox was closed")
        self._check_isolation()
        layers = None if self.report is None else self.report.layers
        zygote, greeting = await _start_zygote(replace(self._settings, preload=KINDS[kind], layers=layers))
        if self.report is None:
            report = greeting["report"]
            self.report = IsolationReport(**{**report, "layers": tuple(report["layers"])})
            if not self.report.isolated and not self._settings.unsafe:
                await zygote.stop()
            self._check_isolation()
        return zygote

    def _check_isolation(self) -> None:
        if self.report is None or self.report.isolated:
            return
        missing = "".join(f"\n- {layer}: {why}" for layer, why in self.report.missing.items())
        if not self._settings.unsafe:
            text = f"this machine does not offer enough isolation. Missing:{missing}\n"
            raise NotRun(f"{text}Provide these layers, or accept the risk with unsafe=True.", ExecutionStatus.REFUSED)
        if not self._warned:
            self._warned = True
            logger.warning("unsafe=True: programs run without sufficient isolation. Missing:%s", missing)

    async def stop(self) -> None:
        """Stop all zygotes and the programs that they run."""
        self.slots.close()
        self._is_closed = True
        async with self._lock:
            members = [zygote for kind in self._members.values() for zygote in kind]
            killed = [zygote for zygote in members if not zygote.alive]
            await asyncio.gather(*(zygote.stop() for zygote in members))
            for kind in self._members.values():
                kind.clear()
        in_namespace = (
            self.report is not None and "namespace" in self.report.layers
        )  # in a namespace, a zygote cannot remove its root
        if killed or in_namespace:
            sweep(self._settings.scratch_parent)


async def _start_zygote(settings: ZygoteSettings) -> tuple[Zygote, Any]:
    """Start a zygote and return it with its greeting; retry while another program may hold the resource that ran out.

    Raises:
        NotRun: the zygote cannot start.
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
    """Raise ValueError if a limit is not positive or is too large."""
    if not 0 < timeout_s < 1e7:
        raise ValueError(f"timeout_s must be a positive number of seconds, not {timeout_s!r}")
    if not 0 < memory_mb < 1 << 30:
        raise ValueError(f"memory_mb must be a positive number of MiB, not {memory_mb!r}")
