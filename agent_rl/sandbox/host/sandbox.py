"""`PythonSandbox`: runs untrusted Python programs, each in a confined process of its own, from one event loop.

A program runs as `__main__` in a fresh process that may read the standard library and the declared packages, write to
one directory that is removed afterwards, and use neither the network nor other programs. Its wall-clock time, memory,
output, files and threads are bounded. How it ended is told by the kernel, not by what it wrote.

What this does not promise: it is no virtual machine, so a hole in the kernel is a hole here. Names and sizes of files
elsewhere can be seen (not their contents). Objects that are still alive when the program ends are not finalized. Disk,
files and threads are counted about ten times a second, so a program can be over these limits for a moment.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence

from agent_rl.errors import UnscoredError
from agent_rl.sandbox.host.execution import Execution, ExecutionStatus, IsolationReport
from agent_rl.sandbox.host.host import HANG_S, Host, check_limits
from agent_rl.sandbox.host.packages import package_files, readable_paths
from agent_rl.sandbox.host.pool import KINDS
from agent_rl.sandbox.host.process import Feed, Output, execution_of
from agent_rl.sandbox.host.sessions import SandboxSession
from agent_rl.sandbox.host.supervisor import Lost, NotRun, Settings, Zygote
from agent_rl.sandbox.jail.protocol import FORK, SHOW_LAST, Op

__all__ = ["PythonSandbox"]

_MIB = 1 << 20
_SURE_BYTES = 4096  # what an empty pipe takes at once, everywhere


class PythonSandbox:
    """Runs Python programs; use it as an async context manager, in one event loop.

    The processes that programs are forked from are started when they are first needed: one without packages, one with
    numpy, one with numpy and sympy, chosen by the words in the program.

    Args:
        max_concurrency: programs (or cells) that run at a time; others wait. None: the number of cores, because the
            limits are in wall-clock seconds and programs that share a core would run into them; but at least 4.
        packages: installed distributions that programs may import, with their requirements. Nothing else of the
            environment can be imported or read.
        unsafe: run programs even where the machine does not offer enough isolation.
        output_bytes: bytes of standard output and standard error together after which a program is ended.
        file_bytes: size of any one file that a program writes.
        disk_bytes: what the files of a program may take on disk.
        scratch_dir: where the programs' directories are made; None: the system's temporary directory.

    Raises:
        ConfigError: a package is not installed.
    """

    def __init__(
        self,
        *,
        max_concurrency: int | None = None,
        packages: Sequence[str] = ("numpy", "sympy"),
        unsafe: bool = False,
        output_bytes: int = _MIB,
        file_bytes: int = 32 * _MIB,
        disk_bytes: int = 128 * _MIB,
        scratch_dir: str | None = None,
    ) -> None:
        if max_concurrency is not None and max_concurrency < 1:
            raise ValueError(f"max_concurrency must be at least 1, not {max_concurrency}")
        self._cores = len(os.sched_getaffinity(0))
        self._concurrency = max_concurrency or max(4, self._cores)
        self._output_bytes = output_bytes
        files = package_files(packages)
        self._kinds = {
            kind: modules for kind, modules in KINDS.items() if all(name.partition(".")[0] in files for name in modules)
        }
        self._settings = Settings(
            unsafe=unsafe,
            scratch_parent=os.path.realpath(scratch_dir or tempfile.gettempdir()),
            package_files=files,
            readable=tuple(readable_paths(files.values())),
            file_bytes=file_bytes,
            open_files=64,
            disk_bytes=disk_bytes,
            max_files=2000,
            max_threads=64,
        )
        self._host: Host | None = None

    async def __aenter__(self) -> PythonSandbox:
        if self._host is not None:
            raise RuntimeError("this PythonSandbox is open already")
        each = min(4, 1 + self._cores // 8)
        self._host = Host(self._settings, self._kinds, each, self._concurrency, self._output_bytes)
        return self

    async def __aexit__(self, *_: object) -> None:
        host = self._open_host()
        self._host = None
        await host.zygotes.stop()

    @property
    def report(self) -> IsolationReport | None:
        """Which layers of isolation hold here; None before the first program or `probe`."""
        return self._host.zygotes.report if self._host is not None else None

    async def probe(self) -> IsolationReport:
        """Find out which layers of isolation hold here, by trying forbidden acts in a confined process.

        Raises:
            UnscoredError: the sandbox's process could not be started.
        """
        zygotes = self._open_host().zygotes
        try:
            await zygotes.get("lean")
        except NotRun as error:
            if zygotes.report is None:
                raise UnscoredError(str(error)) from error
        assert zygotes.report is not None
        return zygotes.report

    async def run(
        self, code: str, stdin: str = "", timeout_s: float = 5.0, memory_mb: int = 512, *, show_last: bool = False
    ) -> Execution:
        """Run `code` as a program of its own and wait for its end.

        Args:
            code: the program.
            stdin: its standard input.
            timeout_s: wall-clock seconds from its start.
            memory_mb: MiB of address space beyond that of an interpreter with its packages loaded.
            show_last: print the value of a final expression, as a notebook does.

        Returns:
            How it ended. Only wrong arguments and cancellation raise; a cancelled program is killed.
        """
        host = self._open_host()
        check_limits(timeout_s, memory_mb)
        source = code.encode("utf-8", "surrogatepass")
        request = source + stdin.encode("utf-8", "surrogatepass") if stdin else source

        def order(number: int) -> bytes:
            return FORK.pack(Op.FORK, number, SHOW_LAST * show_last, len(source), timeout_s, memory_mb * _MIB)

        async with host.slots:
            kind = host.zygotes.kind_for(code)
            try:
                zygote = host.zygotes.ready(kind) or await host.zygotes.get(kind)
                execution = await _run(host, zygote, order, request, timeout_s)
                if execution is None:
                    execution = await _run(host, await host.zygotes.get(kind), order, request, timeout_s)
            except NotRun as error:
                return error.execution
        return execution or Execution(ExecutionStatus.UNAVAILABLE, stderr="sandbox: its process died twice\n")

    def session(self, timeout_s: float = 5.0, memory_mb: int = 512) -> SandboxSession:
        """A session, in which variables survive from one run to the next; use it as an async context manager.

        Args:
            timeout_s: wall-clock seconds for one run in it.
            memory_mb: MiB of address space beyond that of an interpreter with its packages loaded.
        """
        check_limits(timeout_s, memory_mb)
        return SandboxSession(self._open_host(), timeout_s, memory_mb)

    def _open_host(self) -> Host:
        if self._host is None:
            raise RuntimeError("PythonSandbox is used outside of `async with`")
        self._host.check_loop()
        return self._host


async def _run(
    host: Host, zygote: Zygote, order: Callable[[int], bytes], request: bytes, limit_s: float
) -> Execution | None:
    """One program from fork to end; None when the zygote died before the program is known to have run."""
    loop = host.loop
    try:
        request_out, request_in = os.pipe()
        try:
            output = Output(loop, host.output_bytes)
        except OSError:
            os.close(request_out)
            os.close(request_in)
            raise
    except OSError as error:
        raise NotRun(ExecutionStatus.UNAVAILABLE, f"there are no descriptors left: {error}") from None
    if len(request) > _SURE_BYTES:
        os.set_blocking(request_in, False)
    feed = Feed(loop, request_in, request, last=True)
    number, ended = zygote.fork(order, (request_out, *output.child_ends))
    output.on_overflow = lambda: zygote.order(Op.KILL, number)
    hang = loop.call_later(limit_s + HANG_S, zygote.kill)
    try:
        end = await ended
        output.drain()
        return execution_of(end, output, limit_s)
    except Lost as lost:
        if not lost.running:
            return None
        output.drain()
        out, err = output.take()
        return Execution(ExecutionStatus.UNAVAILABLE, out, f"{err}sandbox: its process died\n")
    except asyncio.CancelledError:
        zygote.forget(number)
        raise
    finally:
        hang.cancel()
        feed.close()
        output.close()
