"""What a forked child does: confine itself, read its program, run it as `__main__`, write out, leave.

Nothing untrusted is read before the confinement holds. There are few steps, because each is made once for every
execution.
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

__all__ = ["NOT_CONFINED_EXIT", "ChildSettings", "Job", "Seeds", "execute", "flush", "run", "write_out_and_die"]

NOT_CONFINED_EXIT = 70
_OWN_FILES = (__file__, marked_value.__code__.co_filename)  # not shown in tracebacks
_CHANNEL = 3  # of a session, or between a program and its tests
_MT19937_BYTES = 624 * 4
_environment: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_seed = _random.Random.seed  # what `random.seed` comes to, by way of forty pages
_LONG_BITS = 64
_NO_CPU_LIMIT_S = 1e9  # a session's cells have a deadline each; their CPU times must not add up

Namespace: TypeAlias = dict[str, Any]
Seeds: TypeAlias = tuple[list[random.Random], int]
"""Random generators, and the address of the state of numpy's global one (0 without numpy)."""


class ChildSettings(NamedTuple):
    """What is the same for all children of a zygote."""

    confinement: Confinement | None  # None: this zygote forks nothing
    file_bytes: int
    seeds: Seeds
    failing: int  # descriptor that takes the number of a child that could not be confined
    descriptors: int  # all that a child inherits are smaller


Job: TypeAlias = tuple[ChildSettings, int, tuple[int, ...], str, int, int, float, int]
"""Number, descriptors, scratch directory, flags, bytes of code, limit in seconds, limit in bytes of memory."""


def run(job: Job) -> NoReturn:
    """Confine this process, then run one program, or the cells of a session until its channel ends.

    Here and in what it calls before the program, each object that is touched costs the copy of a page (2 microseconds),
    and each attribute that nobody has looked up before costs three: hence tuples that are taken apart.
    """
    settings, number, (channel, out, err, *link), scratch, flags, code_bytes, limit_s, memory_bytes = job
    session = flags & SESSION
    if session:
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)  # what the zygote has there is one open file with flags, for all its children
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
        # Past the mapping's own methods, which would copy pages; no other program can be started that would look there.
        _environment[b"HOME"] = _environment[b"TMPDIR"] = scratch.encode()
        for generator in generators:
            _seed(generator)
        if numpy_state and call("getrandom", numpy_state, _MT19937_BYTES) != _MT19937_BYTES:
            raise OSError(errno.EIO, "getrandom gave too little")
    except BaseException as error:  # noqa: BLE001 - reported to the zygote and the trainer; no program may run
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
        name: its name in tracebacks.
        show_last: print the value of a final expression.
        then: called with the program's names, and those before it: the program is a module that others call.

    Returns:
        The exit code, whether an unhandled MemoryError ended it, and what `then` returned.
    """
    value = b""
    try:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        namespace = sys.modules["__main__"].__dict__
        if then is not None:
            begin(namespace, sys.modules)
        before = dict(namespace)
        for code in _compile(text, name, show_last):
            exec(code, namespace)  # noqa: S102 - this is what the sandbox is for
        if then is not None:
            value = then(namespace, before)
    except SystemExit as error:
        return _exit_code(error.code), False, b""
    except BaseException as error:  # noqa: BLE001 - shown to whoever wrote the program
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
        codes.append(compile(_ast.Interactive(last), name, "single", dont_inherit=True))  # shows it by sys.displayhook
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
    except BaseException:  # noqa: BLE001 - no memory left, or the program's own hook: at least the kind of error
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}\n".encode("ascii", "replace"))


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):  # as Python does it, which takes what does not fit into a C long for -1
        return int.__and__(code, 0xFF) if int.bit_length(code) < _LONG_BITS else 0xFF
    with contextlib.suppress(Exception):
        print(code, file=sys.stderr)
    return 1


def _finish(exit_code: int) -> int:
    """What Python does at its end: other threads are waited for, exit handlers run, buffers are written out."""
    try:
        if _thread._count() or threading._threading_atexits:  # type: ignore[attr-defined]
            threading._shutdown()  # type: ignore[attr-defined]
        if atexit._ncallbacks():
            atexit._run_exitfuncs()
    except SystemExit as error:
        exit_code = _exit_code(error.code)
    except BaseException as error:  # noqa: BLE001 - shown to whoever wrote the program
        _show(error)
    flush()
    return exit_code


def flush() -> None:
    """Write out what is buffered in the standard streams."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        try:  # noqa: SIM105 - runs for every program, and this is a tenth of the cost
            stream.flush()  # type: ignore[union-attr]
        except Exception:  # noqa: BLE001 - closed or replaced by the program
            pass


def write_out_and_die(*_: object) -> None:
    """A child's handler of SOFT_SIGNAL."""
    flush()
    os.kill(os.getpid(), signal.SIGKILL)


def _read(descriptor: int, size: int) -> bytes:
    """`size` bytes, fewer only where the other end was closed."""
    parts = []
    while size and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
