"""Prepares a zygote once, so that each fork is cheap and each program starts in a clean process.

The preparation imports modules, opens streams and fills the interpreter's caches for the children.
"""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import contextlib
import gc
import importlib
import io
import linecache
import random
import signal
import sys
from collections.abc import Sequence
from types import ModuleType

from .child import Seeds, execute, flush, write_out_and_die
from .protocol import SOFT_SIGNAL

_BUFFER_BYTES = 1 << 16
_REHEARSALS = 20  # CPython 3.11 specializes a function at its eighth call
# Imports that most programs use. Each additional shared library slows down every fork.
# fmt: off
_MODULES = (
    "bisect", "collections.abc", "contextlib", "copy", "dataclasses", "enum", "functools", "heapq", "io", "itertools",
    "json", "linecache", "math", "operator", "random", "re", "string", "threading", "time", "traceback", "typing",
)
# fmt: on


def reset_signals() -> None:
    """Reset every signal to its state in a new Python process, and unblock all signals.

    Programs would otherwise inherit the trainer's signal state, which under `nohup`, for example, ignores SIGHUP.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def preload(modules: Sequence[str]) -> Seeds:
    """Import `modules` and the imports that most programs use, and set up this process for programs.

    Returns:
        The random generators that each child must seed.
    """
    for name in (*_MODULES, *modules):
        importlib.import_module(name)
    with contextlib.suppress(ImportError):  # fills the import caches of directories that programs cannot list
        importlib.import_module("_no_such_module")
    _set_up_main()
    seeds = _seeds()
    atexit._clear()
    _rehearse()
    if "tempfile" in sys.modules:
        sys.modules["tempfile"].__dict__["tempdir"] = None  # programs must not inherit the zygote's temporary directory
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.partition(".")[0] == __package__]:
        del sys.modules[name]
    sys.path.insert(0, "")
    return seeds


def _set_up_main() -> None:
    sys.stdin = sys.__stdin__ = _stream(0, "r", "surrogateescape")  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", "surrogateescape")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", "backslashreplace", line_buffering=True)  # type: ignore[misc]
    sys.modules["__main__"] = main = ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    for name in ("exit", "quit"):  # the site module, which normally adds these functions, is not used
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))
    setattr(builtins, "help", _sitebuiltins._Helper())  # noqa: B010
    signal.signal(SOFT_SIGNAL, write_out_and_die)


def _stream(descriptor: int, mode: str, errors: str, *, line_buffering: bool = False) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, mode, closefd=False)
    buffer = (io.BufferedReader if mode == "r" else io.BufferedWriter)(raw, _BUFFER_BYTES)
    return io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=line_buffering)


def _seeds() -> Seeds:
    numpy_state = 0
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        # After seeding, all of the state is used up, so the next number comes from the bytes that a child writes there.
        numpy_random.seed(0)
        numpy_state = numpy_random.get_bit_generator().ctypes.state_address
    default = random._inst  # the default generator; sympy has a separate one
    return [
        default,
        *(item for item in gc.get_objects() if type(item) is random.Random and item is not default),
    ], numpy_state


def _rehearse() -> None:
    """Run the code that children will run, to fill the interpreter's caches before the first fork."""
    for _ in range(_REHEARSALS):
        execute("print(1)", "<sandbox>", False)  # shows nothing, because a zygote's standard output is /dev/null
        flush()
    del linecache.cache["<sandbox>"]
