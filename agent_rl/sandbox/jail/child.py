"""What a forked child does: confine itself, read its program, run it as `__main__`, write out, leave.

Nothing untrusted is read before the confinement holds. Standard library only, and few steps: each is made once for
every execution.
"""

from __future__ import annotations

import _ast
import _random
import _sitebuiltins
import _thread
import atexit
import builtins
import contextlib
import errno
import gc
import io
import linecache
import os
import random
import signal
import sys
import threading
import traceback
from types import CodeType, ModuleType
from typing import Any, NamedTuple, NoReturn, TypeAlias

from .call import begin, value_of
from .layers import Confinement
from .protocol import CALL, CELL, CELL_END, MEMORY_SIGNAL, SESSION, SHOW_LAST, SOFT_SIGNAL
from .syscalls import call

__all__ = ["NOT_CONFINED_EXIT", "Job", "Rules", "prepare", "run"]

NOT_CONFINED_EXIT = 70
_BUFFER_BYTES = 1 << 16
_OWN_FILES = (__file__, value_of.__code__.co_filename)  # not shown in tracebacks
_MT19937_BYTES = 624 * 4
_environment: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
_numpy_state = 0  # where numpy's global generator keeps these
_generators: list[random.Random] = [random._inst]
_seed = _random.Random.seed  # what `random.seed` comes to, by way of forty pages
_REHEARSALS = 20  # CPython 3.11 adapts a function to what it does at its eighth call
_CPU_FACTOR = 4.0  # CPU seconds for a second of the limit: a backstop against many threads
_NO_CPU_LIMIT_S = 1e9  # a session's cells have a deadline each; their CPU times must not add up


class Rules(NamedTuple):
    """What is the same for all children of a zygote."""

    confinement: Confinement | None  # None: this zygote forks nothing
    file_bytes: int
    open_files: int
    zygote_descriptors: range
    failing: int  # the one of them that takes the number of a child that could not be confined


Job: TypeAlias = tuple[Rules, int, tuple[int, ...], str, int, int, float, int]
"""Number, descriptors, scratch directory, flags, bytes of code, limit in seconds, limit in bytes of memory."""


def prepare() -> None:
    """In the zygote: everything that need not be done in each child."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", "surrogateescape")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", "surrogateescape")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace", line_buffering=True)  # type: ignore[misc]
    sys.modules["__main__"] = main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    for name in ("exit", "quit"):  # as the site module does
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    setattr(builtins, "help", _sitebuiltins._Helper())  # noqa: B010
    signal.signal(SOFT_SIGNAL, _write_out_and_die)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        global _numpy_state
        # All of the state is used up: the next number is made from the bytes that a child puts there.
        numpy_random.seed(0)
        _numpy_state = numpy_random.get_bit_generator().ctypes.state_address
    # sympy has a generator of its own.
    _generators[1:] = [thing for thing in gc.get_objects() if type(thing) is random.Random and thing != _generators[0]]
    atexit._clear()
    _rehearse()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].__dict__["tempdir"] = None  # not the zygote's
    sys.dont_write_bytecode = True


def _rehearse() -> None:
    """Run what children run, so that the interpreter's caches are filled here, and not in pages that a child copies."""
    for _ in range(_REHEARSALS):
        _execute("print(1)", "<sandbox>", False)  # a zygote's standard output is /dev/null
        _flush()
    del linecache.cache["<sandbox>"]


def run(job: Job) -> NoReturn:
    """Confine this process, then run one program, or the cells of a session until its channel ends.

    Here and in what it calls before the program, each object that is touched costs the copy of a page (2 microseconds),
    and each attribute that nobody has looked up before costs three: hence tuples that are taken apart.
    """
    rules, number, (channel, out, err), scratch, flags, code_bytes, limit_s, memory_bytes = job
    session = flags & SESSION
    if session:
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)  # what the zygote has there is one open file with flags, for all its children
    else:
        os.dup2(channel, 0)
        os.close(channel)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    _confine(rules, number, scratch, memory_bytes, _NO_CPU_LIMIT_S if session else limit_s * _CPU_FACTOR)
    gc.enable()
    if session:
        _run_cells(channel)
        os._exit(0)
    text = _read(0, code_bytes).decode("utf-8", "replace")
    exit_code, out_of_memory = _execute(text, "<sandbox>", bool(flags & SHOW_LAST))
    exit_code = _finish(exit_code)
    if out_of_memory:
        os.kill(os.getpid(), MEMORY_SIGNAL)
    os._exit(exit_code)


def _confine(rules: Rules, number: int, scratch: str, memory_bytes: int, cpu_s: float) -> None:
    confinement, file_bytes, open_files, zygote_descriptors, failing = rules
    try:
        assert confinement is not None
        os.chdir(scratch)
        confinement.apply(
            memory_bytes=memory_bytes,
            file_bytes=file_bytes,
            max_open_files=open_files,
            scratch=scratch,
            cpu_s=cpu_s,
        )
        # Past the mapping's own methods, which would copy pages; no other program can be started that would look there.
        _environment[b"HOME"] = _environment[b"TMPDIR"] = scratch.encode()
        for generator in _generators:
            _seed(generator)
        if _numpy_state and call("getrandom", _numpy_state, _MT19937_BYTES) != _MT19937_BYTES:
            raise OSError(errno.EIO, "getrandom gave too little")
    except BaseException as error:  # noqa: BLE001 - told to the zygote and the trainer; no program may run
        os.write(2, f"sandbox: the program was not run, because its process could not be confined: {error}\n".encode())
        os.write(failing, number.to_bytes(8, "little"))
        os._exit(NOT_CONFINED_EXIT)
    os.closerange(zygote_descriptors.start, zygote_descriptors.stop)


def _run_cells(channel: int) -> None:
    count = 0
    while len(head := _read(channel, CELL.size)) == CELL.size:
        nonce, flags, code_bytes, stdin_bytes = CELL.unpack(head)
        text = _read(channel, code_bytes).decode("utf-8", "replace")
        given = _read(channel, stdin_bytes)
        calling = bool(flags & CALL)
        sys.stdin = io.TextIOWrapper(io.BytesIO(b"" if calling else given), "utf-8", "surrogateescape")
        count += 1
        values: list[bytes] = []
        exit_code, out_of_memory = _execute(
            text, f"<cell {count}>", bool(flags & SHOW_LAST), (given, values) if calling else None
        )
        _flush()
        value = values[0] if values else b""
        _write(channel, CELL_END.pack(nonce, exit_code, out_of_memory, len(value)) + value)


def _execute(text: str, name: str, show_last: bool, call: tuple[bytes, list[bytes]] | None = None) -> tuple[int, bool]:
    """Run `text` in `__main__`; returns the exit code and whether an unhandled MemoryError ended it.

    Args:
        text: the program.
        name: its name in tracebacks.
        show_last: print the value of a final expression.
        call: what to call then, and where to put the value.
    """
    try:
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        namespace = sys.modules["__main__"].__dict__
        if call is not None:
            begin(namespace, sys.modules)
        for code in _compile(text, name, show_last):
            exec(code, namespace)  # noqa: S102 - this is what the sandbox is for
        if call is not None:
            call[1].append(value_of(namespace, call[0]))
    except SystemExit as error:
        return _exit_code(error.code), False
    except BaseException as error:  # noqa: BLE001 - shown to whoever wrote the program
        _show(error)
        return 1, isinstance(error, MemoryError)
    return 0, False


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
    if isinstance(code, int):
        return code & 0xFF
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
    _flush()
    return exit_code


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__):
        try:  # noqa: SIM105 - runs for every program, and this is a tenth of the cost
            stream.flush()  # type: ignore[union-attr]
        except Exception:  # noqa: BLE001 - closed or replaced by the program
            pass


def _write_out_and_die(*_: object) -> None:
    _flush()
    os.kill(os.getpid(), signal.SIGKILL)


def _read(descriptor: int, size: int) -> bytes:
    """`size` bytes, fewer only where the other end was closed."""
    parts = []
    while size and (part := os.read(descriptor, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _stream(descriptor: int, mode: str, errors: str, *, line_buffering: bool = False) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    buffer = (io.BufferedReader if mode == "r" else io.BufferedWriter)(raw, _BUFFER_BYTES)
    return io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=line_buffering)
