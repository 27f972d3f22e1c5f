"""Tests which layers work on this machine, by attempting forbidden actions in confined children."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from .layers import Confinement, Plan
from .namespace import enter_namespace
from .syscalls import supported

TIERS: tuple[frozenset[str], ...] = (
    frozenset({"uid", "landlock", "seccomp"}),
    frozenset({"landlock", "seccomp"}),
    frozenset({"namespace", "seccomp"}),
)
"""Sets of layers that suffice for confinement, in order of preference."""
PARTS = tuple(map(frozenset, (("uid", "seccomp"), ("landlock",), ("seccomp",), ("uid",))))
"""Sets of layers that do not suffice for confinement and are used only with `unsafe`."""

_REMEDIES = {
    "uid": "start as root (CAP_SETUID, CAP_SETGID, CAP_CHOWN) with an interpreter and packages that everybody can read",
    "namespace": "permit user namespaces (sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0); a container must permit them",
    "landlock": "use Linux 5.13 or later with landlock in its `lsm=` list; a container must permit it",
    "seccomp": "use 64-bit Linux on x86-64 or aarch64 with seccomp filters",
}
"""Layer -> the remedy if the layer is missing. A problem without a layer's name is assigned to the first layer of a
set."""
_LIBRARY_MODULES = ("colorsys", "netrc", "quopri", "tabnanny")  # rarely loaded, so importing such a module reads a file
_TRIAL_SECONDS = 10
_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
_libc = ctypes.CDLL(None, use_errno=True)

_Results = dict[str, str]


@dataclass(frozen=True)
class ProbeReport:
    """The working layers of this machine.

    Attributes:
        plan: the first plan that works; if None, untrusted code must be rejected.
        missing: layer -> why this layer does not work, and the remedy, for plans better than the chosen plan.
        acts: attempted action -> "denied" or "ALLOWED", under the chosen plan, or the last plan if none was chosen.
    """

    plan: Plan | None
    missing: dict[str, str]
    acts: dict[str, str]


def probe(readable: Sequence[str], candidates: Sequence[frozenset[str]] = TIERS) -> ProbeReport:
    """Choose the first candidate that stops all forbidden actions and allows the permitted actions.

    This function forks, so the calling process must have only one thread.

    Args:
        readable: paths that children may read, including at least an interpreter's library.
        candidates: sets of layers to try in order; pass a part of `TIERS` to force a fallback.
    """
    missing: dict[str, str] = {}
    acts: _Results = {}
    if not supported():
        return ProbeReport(None, {"seccomp": _REMEDIES["seccomp"]}, acts)
    with _targets() as (base, targets):
        for number, layers in enumerate(candidates):
            scratch = f"{base}/scratch-{number}"
            os.mkdir(scratch, 0o700)
            plan = Plan(layers, tuple(readable), base)
            results = _trial(plan, scratch, targets)
            acts = {act: results[act] for act in _ACTS if act in results}
            if (problem := _problem(results, layers)) is None:
                return ProbeReport(plan, missing, acts)
            named_layers = [layer for layer in _REMEDIES if problem.startswith(f"{layer}:")]
            layer = next(layer for layer in (*named_layers, *_REMEDIES) if layer in layers)
            missing.setdefault(layer, f"{problem}; {_REMEDIES[layer]}")
    return ProbeReport(None, missing, acts)


def _trial(plan: Plan, scratch: str, targets: _Targets) -> _Results:
    """Return the results of all actions in a child under `plan`, or "failed" if the child cannot work."""
    files = [path for path in plan.readable if os.path.exists(path)]
    folders = [path for path in files if os.path.isdir(path)]  # in the namespace, other paths look like folders too

    def parent() -> _Results:
        if "namespace" in plan.layers:
            enter_namespace(plan.readable, scratch)
        confinement = Confinement(plan)

        def child() -> _Results:
            confinement.apply(memory_bytes=1 << 30, file_bytes=1 << 20, scratch=scratch, cpu_s=_TRIAL_SECONDS)
            results = {act: _attempt(work, targets) for act, (work, _) in _ACTS.items()}
            return results | _use(scratch, folders, [path for path in files if path not in folders])

        return _in_child(child)

    return _in_child(parent)


def _use(scratch: str, folders: Sequence[str], files: Sequence[str]) -> _Results:
    """Try the actions that every program may perform; if an action is denied, the "failed" key contains the reason."""
    try:
        importlib.import_module(next(name for name in _LIBRARY_MODULES if name not in sys.modules))
        for path in folders:
            os.listdir(path)
        for path in files:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        with open(f"{scratch}/written", "w", encoding="utf-8") as file:
            file.write("x")
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()
    except Exception as error:  # noqa: BLE001 - any failure is reported
        return {"failed": f"a confined child could not work: {type(error).__name__}: {error}"}
    return {}


def _problem(results: _Results, layers: frozenset[str]) -> str | None:
    allowed = [name for name, (_, stoppers) in _ACTS.items() if stoppers & layers and results.get(name) == "ALLOWED"]
    if "failed" in results:
        return results["failed"]
    return f"does not stop: {', '.join(allowed)}" if allowed else None


def _in_child(work: Callable[[], _Results]) -> _Results:
    """Run `work` in a forked child, which `work` may confine.

    Returns:
        The results of `work`, or a "failed" key with the problem.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(_TRIAL_SECONDS)
            try:
                results = work()
            except Exception as error:  # noqa: BLE001 - a broken layer is reported as missing
                results = {"failed": getattr(error, "strerror", None) or repr(error)}
            os.write(writer, json.dumps(results).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status or not text:
        return {"failed": f"a confined child exited with status {status}"}
    outcome: _Results = json.loads(text)
    return outcome


@contextmanager
def _targets() -> Iterator[tuple[str, _Targets]]:
    """Provide a directory for scratch directories, and the targets, while the block runs."""
    base = tempfile.mkdtemp(prefix="sandbox-probe-")
    victim = os.fork()
    if victim == 0:
        while True:
            signal.pause()
    try:
        os.chmod(base, 0o755)
        outside = f"{base}/outside"
        os.mkdir(outside, 0o755)
        for name, mode in (("public", 0o644), ("private", 0o600)):
            os.close(os.open(f"{outside}/{name}", os.O_WRONLY | os.O_CREAT, mode))
        with socket.create_server(("127.0.0.1", 0)) as server:
            yield base, _Targets(outside, server.getsockname()[1], victim)
    finally:
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        shutil.rmtree(base, ignore_errors=True)


@dataclass(frozen=True)
class _Targets:
    """Targets that a confined child must not reach; the child's parent creates and owns them.

    Attributes:
        directory: a directory outside the readable paths, with the files `public` (mode 0644) and `private` (0600).
        port: port of a server on this machine.
        victim: id of another process that belongs to the user who probes.
    """

    directory: str
    port: int
    victim: int


def _attempt(act: Callable[[_Targets], object], targets: _Targets) -> str:
    """Return "denied" if the action fails with an OSError, otherwise "ALLOWED"."""
    try:
        act(targets)
    except OSError:
        return "denied"
    return "ALLOWED"


def _open(path: str, flags: int) -> None:
    os.close(os.open(path, flags))


def _connect(targets: _Targets) -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", targets.port))


def _ptrace(targets: _Targets) -> None:
    if _libc.ptrace(_PTRACE_ATTACH, targets.victim, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(targets.victim, 0x40000000)  # __WALL: stopped
    _libc.ptrace(_PTRACE_DETACH, targets.victim, None, None)


def _fork(_: _Targets) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _execute(targets: _Targets) -> None:
    with suppress(FileNotFoundError):  # the kernel looked for the file, so execution is allowed
        os.execv(f"{targets.directory}/missing", ["missing"])


_FILES, _SECCOMP, _UID = frozenset({"landlock", "namespace"}), frozenset({"seccomp"}), frozenset({"uid"})

_ACTS: dict[str, tuple[Callable[[_Targets], object], frozenset[str]]] = {
    "read a file outside": (lambda at: _open(f"{at.directory}/public", os.O_RDONLY), _FILES),
    "list a directory outside": (lambda at: os.listdir(at.directory), _FILES),
    "write a file outside": (lambda at: _open(f"{at.directory}/public", os.O_WRONLY), _FILES),
    "create a file outside": (lambda at: _open(f"{at.directory}/new", os.O_WRONLY | os.O_CREAT), _FILES),
    "read a private file of the user": (lambda at: _open(f"{at.directory}/private", os.O_RDONLY), _FILES | _UID),
    "signal another process": (lambda at: os.kill(at.victim, 0), _SECCOMP | _UID),
    "trace another process": (_ptrace, _SECCOMP | _UID),
    "become root again": (lambda at: os.setresuid(0, 0, 0), _UID),
    "change a file's mode": (lambda at: os.chmod(f"{at.directory}/public", 0o644), _SECCOMP | _UID),
    "connect to a server": (_connect, _SECCOMP),
    "fork": (_fork, _SECCOMP),
    "execute a program": (_execute, _SECCOMP),
}
"""For each action, the function that tries it and the layers that must deny it. The actions are harmless."""
