"""`PythonSandbox` runs untrusted Python programs, each in a separate confined process, from one event loop.

A program runs as `__main__` in a fresh process that may read the standard library and the declared packages and write
to one directory, which is removed afterwards, but cannot use the network or other programs. The program's time, memory,
output, files and threads are limited. The kernel reports how a program ended; a program cannot change this report.

The sandbox is not a virtual machine, so a kernel vulnerability affects it. A program can see names and sizes of
files elsewhere, but not their contents. Objects that are still alive when the program ends are not finalized. Disk
space, files and threads are checked about ten times per second, so a program can exceed these limits for a moment.
"""

from __future__ import annotations

import importlib.metadata
import json
import marshal
import os
import re
import secrets
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.sandbox.host.execution import Execution, IsolationReport
from agent_rl.sandbox.host.places import PLACES, Places
from agent_rl.sandbox.host.pool import Pool, check_limits
from agent_rl.sandbox.host.process import Child
from agent_rl.sandbox.host.sessions import SandboxSession
from agent_rl.sandbox.host.supervisor import NotRun, Zygote
from agent_rl.sandbox.jail.protocol import CALL, SHOW_LAST, ZygoteSettings

_MIB = 1 << 20
_PACKAGES = ("site-packages", "dist-packages")  # the interpreter's own, which a virtual environment does not use
_SYSTEM = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo", "/dev/null", "/dev/zero", "/dev/urandom")


class PythonSandbox:
    """Runs Python programs; use it as an async context manager, in one event loop.

    Programs are forked from processes that start on demand: one without packages, one with numpy, one with numpy and
    sympy, chosen by the words in the program.

    Args:
        max_concurrency: maximum number of concurrent programs (or cells) in this sandbox. If None, the programs share
            this node's places (`host/places.py`) with all other processes.
        packages: installed packages that programs may import, with their requirements. The rest of the
            environment cannot be imported or read.
        unsafe: whether to run programs even if the machine does not offer enough isolation.
        output_bytes: limit on standard output and standard error together, in bytes.
        file_bytes: size limit for each file that a program writes, in bytes.
        disk_bytes: limit on the disk space of a program's files, in bytes.
        scratch_dir: parent of the programs' directories; None means the system's temporary directory.

    Raises:
        ConfigError: a package is not installed, or is installed in editable mode.
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
        self.max_concurrency = max_concurrency or PLACES
        self._shares_places = max_concurrency is None
        self._output_bytes = output_bytes
        files = _package_files(packages)
        self._settings = ZygoteSettings(
            unsafe=unsafe,
            scratch_parent=os.path.realpath(scratch_dir or tempfile.gettempdir()),
            package_files=files,
            readable=_readable_paths(files.values()),
            file_bytes=file_bytes,
            disk_bytes=disk_bytes,
        )
        self._pool: Pool | None = None

    async def __aenter__(self) -> PythonSandbox:
        if self._pool is not None:
            raise RuntimeError("this PythonSandbox is already open")
        self._pool = Pool(self._settings, Places(self.max_concurrency, shared=self._shares_places), self._output_bytes)
        return self

    async def __aexit__(self, *_: object) -> None:
        pool = self._open_pool()
        self._pool = None
        await pool.stop()

    @property
    def report(self) -> IsolationReport | None:
        """The isolation of this machine, or None before the first run or `probe`."""
        return self._pool.report if self._pool is not None else None

    async def probe(self) -> IsolationReport:
        """Test which layers of isolation work on this machine, by attempting forbidden actions in a confined process.

        Raises:
            UnscoredError: the sandbox's process cannot start.
        """
        pool = self._open_pool()
        try:
            await pool.get("lean")
        except NotRun as error:
            if pool.report is None:
                raise UnscoredError(str(error)) from error
        assert pool.report is not None
        return pool.report

    async def run(
        self,
        code: str,
        stdin: str = "",
        timeout_s: float = 5.0,
        memory_mb: int = 512,
        *,
        show_last: bool = False,
        output_bytes: int = 0,
    ) -> Execution:
        """Run `code` as a separate program and wait for its end.

        Args:
            code: the program.
            stdin: the program's standard input.
            timeout_s: time limit in seconds, excluding time spent waiting for a core (the wall time may reach twenty
                times the limit); the limit also applies to the CPU seconds of all threads together.
            memory_mb: limit on the address space beyond that of an interpreter with its packages, in MiB.
            show_last: whether to print the value of a final expression, as a notebook does.
            output_bytes: allowed output in addition to the sandbox's `output_bytes`, in bytes.

        Returns:
            The outcome. Only wrong arguments and cancellation raise exceptions; a cancelled program is killed.
        """
        request = stdin.encode("utf-8", "surrogatepass")
        return await self._run(code, request, SHOW_LAST * show_last, timeout_s, memory_mb, output_bytes)

    async def call(
        self,
        code: str,
        call: tuple[str, Sequence[Any], Mapping[str, Any]],
        timeout_s: float = 5.0,
        memory_mb: int = 512,
        *,
        output_bytes: int = 0,
    ) -> Execution:
        """Run `code`, then call one of its functions; the execution contains the return value as `value`.

        Args:
            code: the program; its `__name__` is not `__main__`.
            call: the function's name, positional and keyword arguments, of types that `marshal` can write.
            timeout_s: time limit for the program and the call together; see `run`.
            memory_mb: see `run`.
            output_bytes: see `run`; the value, as JSON text, is part of the output.
        """
        mark = secrets.token_hex(16)
        order: Any = (*call, mark)
        execution = await self._run(code, marshal.dumps(order), CALL, timeout_s, memory_mb, output_bytes)
        stdout, mark_found, value = execution.stdout.rpartition(mark)
        return replace(execution, stdout=stdout, value=value) if mark_found else execution

    async def _run(
        self, code: str, request: bytes, flags: int, timeout_s: float, memory_mb: int, output_bytes: int
    ) -> Execution:
        pool = self._open_pool()
        check_limits(timeout_s, memory_mb)
        source = code.encode("utf-8", "surrogatepass")
        order = flags, len(source), timeout_s, memory_mb * _MIB

        async def run_once(zygote: Zygote) -> Execution:
            child = Child(pool, zygote, order, os.pipe)
            child.room = pool.output_bytes + output_bytes
            try:
                child.feed(source + request if request else source, timeout_s, last=True)
                return child.execution(await child.ended, timeout_s)
            finally:
                child.close()

        async with pool.slots:
            return await pool.attempt(pool.kind_for(code), run_once)

    def session(self, timeout_s: float = 5.0, memory_mb: int = 512) -> SandboxSession:
        """Return a session whose variables survive between runs; use it as an async context manager.

        Args:
            timeout_s: limit on one run, in wall-clock seconds and in CPU seconds of all threads together.
            memory_mb: limit on the address space beyond that of an interpreter with its packages, in MiB.
        """
        check_limits(timeout_s, memory_mb)
        return SandboxSession(self._open_pool(), timeout_s, memory_mb)

    def _open_pool(self) -> Pool:
        if self._pool is None:
            raise RuntimeError("PythonSandbox is used outside of `async with`")
        self._pool.check_loop()
        return self._pool


def _package_files(packages: Iterable[str]) -> dict[str, str]:
    """Map the names of top-level files and directories of `packages` and their installed requirements to paths.

    Raises:
        ConfigError: a declared package is not installed, or is installed in editable mode.
    """
    paths: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [(name, True) for name in packages]
    while waiting:
        name, is_declared = waiting.pop()
        if (key := re.sub(r"[-_.]+", "-", name).lower()) in seen:
            continue
        seen.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if is_declared:
                raise ConfigError("packages", f"{name!r} is not installed", "Install it, or remove it") from None
            continue  # the requirement applies only to other systems
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if is_declared and origin.get("dir_info", {}).get("editable"):
            raise ConfigError("packages", f"{name!r} is installed in editable mode", "Install it without -e")
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith(".pth") and top not in paths:
                paths[top] = os.path.realpath(str(distribution.locate_file(top)))
        for requirement in distribution.requires or ():
            name, _, marker = requirement.partition(";")
            if not re.search(r"\bextra\b", marker) and (match := re.match(r"[\w.-]+", name)):
                waiting.append((match.group(), False))
    return paths


def _readable_paths(files: Iterable[str]) -> list[str]:
    """Return the paths that Landlock or a namespace must leave readable, besides the scratch root's folders.

    Args:
        files: the packages' paths.
    """
    standard = {os.path.realpath(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")}
    multiarch = sysconfig.get_config_var("MULTIARCH")
    libraries = {f"/usr/lib/{multiarch}", f"/lib/{multiarch}", "/lib64", "/usr/lib64"}
    entries = {os.path.realpath(entry) for entry in sys.path if entry} - standard
    excluded = [path for path in entries if os.path.isdir(path) and not path.endswith("lib-dynload")]
    excluded += [path for folder in standard for name in _PACKAGES if os.path.isdir(path := f"{folder}/{name}")]
    readable: dict[str, None] = {}
    for path in (*sorted(standard), *sorted(libraries), *_SYSTEM):
        if os.path.exists(path):
            readable |= dict.fromkeys(_without(os.path.realpath(path), excluded))
    for path in files:
        if not any(path.startswith(f"{folder}/") for folder in readable):
            readable[path] = None
    return list(readable)


def _without(path: str, excluded: list[str]) -> list[str]:
    """Return `path` itself, or, if it contains excluded directories, everything else in `path`."""
    if path in excluded:
        return []
    if not any(folder.startswith(f"{path}/") for folder in excluded):
        return [path]
    return [kept for name in sorted(os.listdir(path)) for kept in _without(f"{path}/{name}", excluded)]
