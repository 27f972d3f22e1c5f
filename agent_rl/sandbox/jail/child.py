"""The code of a forked child, which confines itself, reads its program, runs it as `__main__`, flushes and exits.

Nothing untrusted is read before the confinement is active. The child takes few steps, because each step costs time in
every execution.
"""

from __future__ import annotations

import _ast
import _random
import _thread
import atexit
import contextlib
import errno
import gc
import io
import json
import linecache
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any, NamedTuple, NoReturn, TypeAlias

from .call import begin, marked_value
from .layers import Confinement
from .link import serve
from .protocol import CALL, CELL, CELL_END, MEMORY_SIGNAL, SERVE, SESSION, SHOW_LAST, TEST
from .pytests import run_tests
from .syscalls import call

NOT_CONFINED_EXIT = 70
_OWN_FILES = (__file__, marked_value.__code__.co_filename)  # not shown in tracebacks
_CHANNEL = 3  # descriptor of a session's channel, or of the socket that connects a program to its tests
_MT19937_BYTES = 624 * 4
_environment: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_seed = _random.Random.seed  # like `random.seed`, but without touching forty memory pages
_LONG_BITS = 64
_NO_CPU_LIMIT_S = 1e9  # no CPU limit for a session, because each cell has its own deadline

Namespace: TypeAlias = dict[str, Any]
Seeds: TypeAlias = tuple[list[random.Random], int]
"""Random generators, and the memory address of numpy's global generator state (0 without numpy)."""


class ChildSettings(NamedTuple):
    """The settings that all children of a zygote share."""

    confinement: Confinement | None  # None if this zygote does not fork
    file_bytes: int
    seeds: Seeds
    failing: int  # descriptor to which a child that could not be confined writes its number
    descriptors: int  # every inherited descriptor is smaller than this number


Job: TypeAlias = tuple[ChildSettings, int, tuple[int, ...], str, int, int, float, int]
"""Settings, number, descriptors, scratch directory, flags, code bytes, time limit in seconds, memory limit in bytes."""


def run(job: Job) -> NoReturn:
    """Confine this process, then run one program, or the cells of a session until its channel ends.

    Before the program runs, touching an object costs a page copy (2 microseconds), and the first lookup of each
    attribute costs three copies, so tuples are unpacked.
    """
    settings, number, (channel, out, err, *link), scratch, flags, code_bytes, limit_s, memory_bytes = job
    session = flags & SESSION
    if session:
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)  # replaces the zygote's input, whose flags all children would share
    else:
        os.dup2(channel, 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _confine(settings, number, scratch, memory_bytes, _NO_CPU_LIMIT_S if session else limit_s)
    if session or link:
        os.dup2(link[0] if link else channel, _CHANNEL)
    os.closerange(_CHANNEL + bool(session or link), settings.descriptors)
    gc.enable()
    if session:
        _run_cells(_CHANNEL)
        os._exit(0)
    text = _read(0, code_bytes).decode("utf-8", "replace")
    if flags & TEST:
        os.write(1, run_tests(json.loads(text), _CHANNEL).encode())
        os._exit(0)
    called = partial(marked_value, sys.stdin.buffer.read()) if flags & CALL else None
    then = partial(serve, _CHANNEL) if flags & SERVE else called
    exit_code, out_of_memory, value = execute(text, "<sandbox>", bool(flags & SHOW_LAST), then)
    if value:
        flush()
        rest = memoryview(value)
        while rest:
            rest = rest[os.write(1, rest) :]
        os._exit(0)
    exit_code = _finish(exit_code)
    if out_of_memory:
        os.kill(os.getpid(), MEMORY_SIGNAL)
    os._exit(exit_code)


def _confine(settings: ChildSettings, number: int, scratch: str, memory_bytes: int, cpu_s: float) -> None:
    confinement, file_bytes, (generators, numpy_state), failing, _ = settings
    try:
        assert confinement is not None
        os.chdir(scratch)
        confinement.apply(memory_bytes=memory_bytes, file_bytes=file_bytes, scratch=scratch, cpu_s=cpu_s)
        # Bypasses the methods of `os.environ`, which would copy pages; no other program can read this environment.
        _environment[b"HOME"] = _environment[b"TMPDIR"] = scratch.encode()
        for generator in generators:
            _seed(generator)
        if numpy_state and call("getrandom", numpy_state, _MT19937_BYTES) != _MT19937_BYTES:
            raise OSError(errno.EIO, "getrandom returned too few bytes")
    except BaseException as error:  # noqa: BLE001 - reported to the zygote and the trainer; the program must not run
        os.write(2, f"sandbox: the program was not run, because its process could not be confined: {error}\n".encode())
        os.write(failing, number.to_bytes(8, "little"))
        os._exit(NOT_CONFINED_EXIT)


def _run_cells(channel: int) -> None:
    count = 0
    while len(head := _read(channel, CELL.size)) == CELL.size:
        nonce, flags, code_bytes, stdin_bytes = CELL.unpack(head)
        text = _read(channel, code_bytes).decode("utf-8", "replace")
        sys.stdin = io.TextIOWrapper(io.BytesIO(_read(channel, stdin_bytes)), "utf-8", "surrogateescape")
        count += 1
        exit_code, out_of_memory, _ = execute(text, f"<cell {count}>", bool(flags & SHOW_LAST))
        flush()
        os.write(channel, CELL_END.pack(nonce, exit_code, out_of_memory))


def execute(
    text: str, name: str, show_last: bool, then: Callable[[Namespace, Namespace], bytes] | None = None
) -> tuple[int, bool, bytes]:
    """Run `text` in `__main__`.

    Args:
        text: the program.
        name: the program's name in tracebacks.
        show_last: whether to print the value of a final expression.
        then: function called with the namespaces after and before the run; with it, the program runs as a module.

    Returns:
        The exit code, whether an unhandled MemoryError ended the program, and the value of `then`.
    """
    value = b""
    try:
        linecache.cache[name] = (len(text), None, io.StringIO(text, None).readlines(), name)
        namespace = sys.modules["__main__"].__dict__
        if then is not None:
            begin(namespace, sys.modules)
        before = dict(namespace)
        for code in _compile(text, name, show_last):
            exec(code, namespace)  # noqa: S102 - running code is the purpose of the sandbox
        if then is not None:
            value = then(namespace, before)
    except SystemExit as error:
        return _exit_code(error.code), False, b""
    except BaseException as error:  # noqa: BLE001 - the error is shown to the program's author
        _show(error)
        return 1, isinstance(error, MemoryError), b""
    return 0, False, value


def _compile(text: str, name: str, show_last: bool) -> list[CodeType]:
    if not show_last:
        return [compile(text, name, "exec", dont_inherit=True)]
    tree: Any = compile(text, name, "exec", _ast.PyCF_ONLY_AST, dont_inherit=True)
    last: list[Any] = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], _ast.Expr) else []
    codes = [compile(tree, name, "exec", dont_inherit=True)]
    if last:
        codes.append(compile(_ast.Interactive(last), name, "single", dont_inherit=True))  # calls sys.displayhook
    return codes


def _show(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    try:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exception(type(error), error, trace)
        else:
            sys.excepthook(type(error), error, trace)
    except BaseException:  # noqa: BLE001 - no memory is left, or the program's hook failed
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}\n".encode("ascii", "replace"))


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):  # as in Python, where a value beyond a C long becomes -1
        return int.__and__(code, 0xFF) if int.bit_length(code) < _LONG_BITS else 0xFF
    with contextlib.suppress(Exception):
        print(code, file=sys.stderr)
    return 1


def _finish(exit_code: int) -> int:
    """Do what Python does at exit: wait for threads, run exit handlers, flush."""
    try:
        if _thread._count() or threading._threading_atexits:  # type: ignore[attr-defined]
            threading._shutdown()  # type: ignore[attr-defined]
        if atexit._ncallbacks():
            atexit._run_exitfuncs()
    except SystemExit as error:
        exit_code = _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001 - the error is shown to the program's author
        _show(error)
    flush()
    return exit_code


def flush() -> None:
    """Flush the standard streams."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        try:  # noqa: SIM105 - this runs for every program, and `suppress` takes ten times as long
            stream.flush()  # type: ignore[union-attr]
        except Exception:  # noqa: BLE001 - the program may have closed or replaced the stream
            pass


def write_out_and_die(*_: object) -> None:
    """Handle SOFT_SIGNAL in a child: flush the streams and die."""
    flush()
    os.kill(os.getpid(), signal.SIGKILL)


def _read(descriptor: int, size: int) -> bytes:
    """Read `size` bytes, or fewer if the other end was closed."""
    parts = []
    while size and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
