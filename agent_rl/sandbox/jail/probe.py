"""Finding out which layers hold on this machine, by attempting forbidden acts in confined children."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .acts import ACTS, Targets, attempt
from .layers import Confinement, Plan
from .namespace import enter_namespace
from .syscalls import supported

__all__ = ["TIERS", "ProbeReport", "probe"]

TIERS: tuple[frozenset[str], ...] = (
    frozenset({"uid", "landlock", "seccomp"}),
    frozenset({"landlock", "seccomp"}),
    frozenset({"namespace", "seccomp"}),
)
"""Sets of layers that confine, best first."""

_REMEDIES = {
    "uid": "start as root (CAP_SETUID, CAP_SETGID, CAP_CHOWN) with an interpreter and packages that everybody can read",
    "namespace": "permit user namespaces (sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1, "
    "kernel.apparmor_restrict_unprivileged_userns=0); a container must permit them",
    "landlock": "use Linux 5.13 or later with landlock among its `lsm=`; a container must permit it",
    "seccomp": "use 64-bit Linux on x86-64 or aarch64 with seccomp filters",
}
"""Layer -> how to get it; where layers hold alone but not together, the first of them is blamed."""
_LIBRARY_MODULES = ("colorsys", "netrc", "quopri", "tabnanny")  # hardly ever loaded, so that importing one reads a file
_TRIAL_SECONDS = 10

_Results = dict[str, str]


@dataclass(frozen=True)
class ProbeReport:
    """What holds here.

    Attributes:
        layers: those that were tried and stop every act they must stop.
        missing: layer -> why it cannot be used, and how to get it; only of plans better than the chosen one.
        acts: act -> "denied" or "ALLOWED", under the chosen plan, or under the last one that was tried.
        plan: the chosen plan; None means that untrusted code must be refused.
    """

    layers: frozenset[str]
    missing: dict[str, str]
    acts: dict[str, str]
    plan: Plan | None


def probe(readable: Sequence[str], candidates: Sequence[frozenset[str]] = TIERS) -> ProbeReport:
    """Try `candidates` in order and choose the first that holds as a whole, and lets a program do what it may.

    Forks, so the calling process must have one thread.

    Args:
        readable: what children may read; an interpreter's library at least.
        candidates: sets of layers, a subset of `TIERS` to force a fallback.
    """
    if not supported():
        return ProbeReport(frozenset(), {"seccomp": _REMEDIES["seccomp"]}, {}, None)
    with _targets() as (base, targets):
        return _Prober(tuple(readable), base, targets).choose(candidates)


class _Prober:
    def __init__(self, readable: tuple[str, ...], base: str, targets: Targets) -> None:
        self._readable, self._base, self._targets = readable, base, targets
        self._trials = 0
        self._missing: dict[str, str] = {}
        self._held: set[str] = set()

    def choose(self, candidates: Sequence[frozenset[str]]) -> ProbeReport:
        acts: _Results = {}
        plan = None
        for layers in candidates:
            if not all(self._holds_alone(layer) for layer in sorted(layers)):
                continue
            results = self._trial(layers, ACTS, self._readable)
            acts = {act: results[act] for act in ACTS if act in results}
            problem = _problem(results, layers)
            if problem is None:
                plan = Plan(layers, self._readable)
                break
            layer = next(layer for layer in _REMEDIES if layer in layers)
            self._held.discard(layer)
            self._missing[layer] = f"{problem}; {_REMEDIES[layer]}"
        return ProbeReport(frozenset(self._held), self._missing, acts, plan)

    def _holds_alone(self, layer: str) -> bool:
        """Whether `layer` by itself stops what it must; tried once."""
        if layer not in self._held and layer not in self._missing:
            alone = frozenset({layer})
            problem = _problem(self._trial(alone, [act for act in ACTS if layer in ACTS[act][1]]), alone)
            if problem is None:
                self._held.add(layer)
            else:
                self._missing[layer] = f"{problem}; {_REMEDIES[layer]}"
        return layer in self._held

    def _trial(self, layers: frozenset[str], acts: Iterable[str], uses: Sequence[str] = ()) -> _Results:
        """Results of `acts` in a child under `layers`; the key "failed" where it cannot be confined or use `uses`."""
        self._trials += 1
        scratch = f"{self._base}/scratch-{self._trials}"
        os.mkdir(scratch, 0o700)
        files = [path for path in uses if os.path.exists(path)]
        folders = [path for path in files if os.path.isdir(path)]  # in the namespace, others look like folders

        def parent() -> _Results:
            if "namespace" in layers:
                enter_namespace(self._readable, scratch)
            confinement = Confinement(Plan(layers, self._readable, self._base))

            def child() -> _Results:
                confinement.apply(
                    memory_bytes=1 << 30, file_bytes=1 << 20, max_open_files=64, scratch=scratch, cpu_s=_TRIAL_SECONDS
                )
                results = {act: attempt(ACTS[act][0], self._targets) for act in acts}
                if uses:
                    results |= _use(scratch, folders, [path for path in files if path not in folders])
                return results

            return _in_child(child)

        return _in_child(parent)


def _use(scratch: str, folders: Sequence[str], files: Sequence[str]) -> _Results:
    """Do what every program may do; the key "failed" where that is refused."""
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
    except Exception as error:  # noqa: BLE001 - whatever it is, it goes into the report
        return {"failed": f"a confined child could not work: {type(error).__name__}: {error}"}
    return {}


def _problem(results: _Results, layers: frozenset[str]) -> str | None:
    allowed = [name for name, (_, stoppers) in ACTS.items() if stoppers & layers and results.get(name) == "ALLOWED"]
    if "failed" in results:
        return results["failed"]
    return f"does not stop: {', '.join(allowed)}" if allowed else None


def _in_child(work: Callable[[], _Results]) -> _Results:
    """Run `work` in a forked child, which it may confine.

    Returns:
        What it returned, or the key "failed" with what went wrong.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(_TRIAL_SECONDS)
            try:
                results = work()
            except Exception as error:  # noqa: BLE001 - a layer that breaks is a layer that is missing
                results = {"failed": getattr(error, "strerror", None) or repr(error)}
            os.write(writer, json.dumps(results).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    if status or not text:
        return {"failed": f"a confined child ended with status {status}"}
    found: _Results = json.loads(text)
    return found


@contextmanager
def _targets() -> Iterator[tuple[str, Targets]]:
    """A directory for scratch directories and the targets, for as long as the block runs."""
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
        with (
            socket.socket() as tcp,
            socket.socket(type=socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_UNIX) as unix,
        ):
            tcp.bind(("127.0.0.1", 0))
            tcp.listen()
            udp.bind(("127.0.0.1", 0))
            unix.bind(f"{outside}/socket")
            unix.listen()
            yield base, Targets(outside, tcp.getsockname()[1], udp.getsockname()[1], victim)
    finally:
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        shutil.rmtree(base, ignore_errors=True)
