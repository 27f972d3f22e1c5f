"""A zygote: the process that has the packages loaded and forks one child for each execution.

It is exec'ed with a clean environment and never forked from the trainer, so that no child holds any of the trainer's
memory. It never sees a program, its input or its output either: those pass through descriptors that it only hands on.
What it does is fork, wait, keep deadlines, and watch disk and threads of what runs for long. It ends when its control
socket does, and takes everything that it started with it.

Standard library only: it runs without site-packages and imports its neighbours under a name of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import heapq
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .child import NOT_CONFINED_EXIT, Job, Rules, prepare, run
from .layers import Confinement, Plan
from .namespace import enter_namespace
from .pages import collapse_heap
from .probe import probe
from .protocol import FORK, ORDER, PACKET_BYTES, RECORD, SOFT_SIGNAL, Op, Reason
from .scratch import ScratchRoot, measure, remove_tree, sweep, touched
from .syscalls import call
from .unnamed import unnamed_bytes

__all__ = ["main"]

_WATCH_S = 0.1
_SOFT_S = 0.1  # between the soft signal and SIGKILL
_OOM_SCORE = "500"  # when memory runs out, programs go before the trainer
_FIRST_OWN = 200  # our descriptors are moved up here, so that a child closes them with one call
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_DESCRIPTORS = struct.Struct("3i")
_FORK = Op.FORK
_RECORDS_BYTES = PACKET_BYTES // RECORD.size * RECORD.size
_ANCILLARY_BYTES = socket.CMSG_SPACE(_DESCRIPTORS.size)
# What most programs import. Each shared library more makes every fork slower.
# fmt: off
_PRELOAD = (
    "bisect", "collections.abc", "contextlib", "copy", "dataclasses", "enum", "functools", "heapq", "io", "itertools",
    "json", "linecache", "math", "operator", "random", "re", "string", "threading", "time", "traceback", "typing",
)
# fmt: on


@dataclass(slots=True)
class _Forked:
    number: int
    started: float
    deadline: float
    scratch: str
    token: int = 0  # the one entry of the timetable that counts
    reason: Reason = Reason.EXITED
    announced: bool = False


def main(descriptor: int) -> None:
    """Serve the control socket `descriptor` until its other end is closed; in a child, run its program instead."""
    job = _serve(descriptor)
    if job is not None:
        run(job)


def _serve(descriptor: int) -> Job | None:
    control = socket.socket(fileno=descriptor)
    settings = json.loads(control.recv(PACKET_BYTES))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)
    root = None
    try:
        sweep(settings["scratch_parent"])
        root = ScratchRoot(settings["scratch_parent"])
        zygote = _Zygote(control, settings, root)
    except Exception:  # noqa: BLE001 - told to the trainer, whose runs are answered with it
        control.send(json.dumps({"error": traceback.format_exc()[-4000:]}).encode())
        if root is not None:
            root.remove()
        return None
    with contextlib.suppress(OSError):  # the trainer has gone
        job = zygote.serve()
        if job is not None:
            return job
    zygote.close()
    return None


def _waking(descriptor: int) -> Callable[[int, object], None]:
    """A signal handler that writes to `descriptor`."""

    def wake(_signal: int, _frame: object) -> None:
        try:  # noqa: SIM105 - runs for every child, and `suppress` writes to more pages
            os.write(descriptor, b".")
        except OSError:  # full, which is as good; or closed, in a child
            pass

    return wake


def _never_free(thing: object) -> None:
    """A child leaves `serve` and has no use for the zygote; freeing it there would touch a hundred shared pages."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _Zygote:
    def __init__(self, control: socket.socket, settings: dict[str, Any], root: ScratchRoot) -> None:
        self._root = root
        self._kept = control, settings  # see _never_free
        self._settings = settings
        packages = root.link(settings["package_files"])
        sys.path.append(packages)
        sys.argv = [""]
        readable = [packages, *settings["readable"]]
        plan = self._choose(readable, settings)
        self._preload(settings["preload"])
        self._count_threads = plan is None or "uid" not in plan.layers
        self._in_namespace = plan is not None and "namespace" in plan.layers
        self._proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # a namespace of our own has none
        if self._in_namespace:
            enter_namespace(readable, root.path)
        self.confinement = Confinement(plan) if plan is not None else None
        own = self._move_up(control, root.lock)
        self._rules = Rules(self.confinement, settings["file_bytes"], settings["open_files"], own, self._failing)
        self._forked: dict[int, _Forked] = {}
        self._pids: dict[int, int] = {}
        self._cleaner: int | None = None
        self._timetable: list[tuple[float, int, int]] = []  # when, token, pid
        self._token = 0
        self._outbox = b""
        self._parent = os.getppid()
        call("prctl", _PR_SET_DUMPABLE, 0)
        # Wakes `serve` even where a fork of the trainer holds the socket.
        call("prctl", _PR_SET_PDEATHSIG, signal.SIGCHLD)
        _never_free(self)
        gc.collect()
        gc.freeze()
        gc.disable()
        collapse_heap()

    def _choose(self, readable: list[str], settings: dict[str, Any]) -> Plan | None:
        self.greeting: dict[str, Any] = {"scratch": self._root.path}
        if settings["layers"] is not None:
            return Plan(frozenset(settings["layers"]), tuple(readable))
        report = probe(readable)
        self.greeting["report"] = {
            "layers": sorted(report.layers if report.plan is None else report.plan.layers),
            "missing": report.missing,
            "acts": report.acts,
            "isolated": report.plan is not None,
        }
        if report.plan is None and settings["unsafe"]:
            return Plan(report.layers - {"namespace"}, tuple(readable))
        return report.plan

    def _preload(self, modules: list[str]) -> None:
        for name in (*_PRELOAD, *modules):
            importlib.import_module(name)
        with contextlib.suppress(ImportError):  # fills the caches of directory listings, which programs cannot list
            importlib.import_module("_no_such_module")
        prepare()
        for name in [name for name in sys.modules if name.partition(".")[0] == __package__]:
            del sys.modules[name]
        sys.path.insert(0, "")

    def _move_up(self, control: socket.socket, lock: int) -> range:
        """Gives our descriptors the numbers from `_FIRST_OWN` on."""
        wake, waker = os.pipe()
        failure, failing = os.pipe()
        own = [wake, waker, failure, failing, control.detach(), lock, self._proc]
        moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FIRST_OWN) for number in own]
        for number in own:
            os.close(number)
        self._wake, waker, self._failure, self._failing, descriptor, self._root.lock, self._proc = moved
        self._control = socket.socket(fileno=descriptor)
        self._control.setblocking(False)
        for number in (self._wake, waker, self._failure):
            os.set_blocking(number, False)
        # No wakeup descriptor: each child would have to undo it.
        signal.signal(signal.SIGCHLD, _waking(waker))
        return range(min(moved), max(moved) + 1)

    def serve(self) -> Job | None:
        """Answer orders; returns a job in a child, and None here once the trainer is gone."""
        self._control.send(json.dumps(self.greeting).encode())
        poll = self._poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        control, wake = self._control.fileno(), self._wake
        while True:
            for descriptor, _ in poll.poll(self._patience_ms()):
                if descriptor == wake:
                    os.read(wake, 64)  # more would not come from the interpreter's own small pages
                    self._reap()
                elif descriptor == control:
                    try:
                        order, ancillary, _, _ = self._control.recvmsg(256, _ANCILLARY_BYTES)
                    except BlockingIOError:
                        continue
                    if not order:
                        return None
                    job = self._obey(order, ancillary)
                    if job is not None:
                        return job
            self._keep_times()
            if self._outbox:
                self._send(b"")
            if os.getppid() != self._parent:
                return None

    def close(self) -> None:
        """Kill and reap all children, and remove the scratch root."""
        children = [*self._pids.values(), *([self._cleaner] if self._cleaner else [])]
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        if not self._in_namespace:  # where it is a mount, which the trainer sweeps away
            self._root.remove()

    def _obey(self, order: bytes, ancillary: list[Any]) -> Job | None:
        if order[0] == _FORK:
            return self._fork(order, _DESCRIPTORS.unpack(ancillary[0][2]))
        op, number, limit_s = ORDER.unpack(order)
        pid = self._pids.get(number)
        if pid is None:  # it has ended meanwhile
            return None
        child = self._forked[pid]
        if op == Op.KILL:
            child.reason = Reason.KILLED
            os.kill(pid, signal.SIGKILL)
        elif op == Op.PAUSE:
            child.token = 0
            os.kill(pid, signal.SIGKILL if child.reason == Reason.DEADLINE else signal.SIGSTOP)
        else:
            now = time.monotonic()
            child.deadline = now + limit_s
            self._schedule(pid, child, min(now + _WATCH_S, child.deadline))
            os.kill(pid, signal.SIGCONT)
        return None

    def _fork(self, order: bytes, descriptors: tuple[int, ...]) -> Job | None:
        _, number, flags, code_bytes, limit_s, memory_bytes = FORK.unpack(order)
        assert self.confinement is not None
        started = time.monotonic()
        try:
            scratch = self._root.take()
            pid = os.fork()
        except OSError as error:
            for descriptor in descriptors:
                os.close(descriptor)
            self._send(RECORD.pack(number, Reason.NOT_FORKED, error.errno or 0, 0.0))
            return None
        if pid == 0:
            return self._rules, number, descriptors, scratch, flags, code_bytes, limit_s, memory_bytes
        for descriptor in descriptors:
            os.close(descriptor)
        child = self._forked[pid] = _Forked(number, started, started + limit_s, scratch)
        self._pids[number] = pid
        self._schedule(pid, child, min(started + _WATCH_S, child.deadline))
        return None

    def _reap(self) -> None:
        records, scratches = b"", []
        while self._forked or self._cleaner:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == self._cleaner:
                self._cleaner = None
                continue
            if status >> 8 == NOT_CONFINED_EXIT:
                self._note_failures()
            child = self._forked.pop(pid)
            del self._pids[child.number]
            scratches.append(child.scratch)
            records += RECORD.pack(child.number, child.reason, status, time.monotonic() - child.started)
        if records:
            self._send(records)
        for scratch in scratches:  # nobody waits for this
            self._root.give_back(scratch)
        self._clean()

    def _clean(self) -> None:
        """Have a process of its own remove what programs left: nobody has to wait for another's files."""
        if self._cleaner is not None or not self._root.used:
            return
        try:
            pid = os.fork()
        except OSError:  # none to be had now: at the end of the next program
            return
        if pid == 0:
            try:
                call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)
                os.nice(19)
                for path in self._root.used:
                    remove_tree(path)
            finally:
                os._exit(0)
        self._cleaner = pid
        self._root.used.clear()

    def _note_failures(self) -> None:
        """Only a child that has not started its program can write to this pipe: eight bytes, its number."""
        with contextlib.suppress(BlockingIOError):
            while number := int.from_bytes(os.read(self._failure, 8), "little"):
                self._forked[self._pids[number]].reason = Reason.NOT_CONFINED

    def _send(self, records: bytes) -> None:
        """Whatever the trainer does not take now is kept: a zygote must not wait for it."""
        self._outbox += records
        try:
            while self._outbox:
                packet = self._outbox[:_RECORDS_BYTES]
                self._control.send(packet)
                self._outbox = self._outbox[len(packet) :]
        except BlockingIOError:
            pass

    def _patience_ms(self) -> float | None:
        if self._outbox:
            return 10.0
        while self._timetable:
            when, token, pid = self._timetable[0]
            child = self._forked.get(pid)
            if child is not None and child.token == token:
                return max(0.0, (when - time.monotonic()) * 1000)
            heapq.heappop(self._timetable)  # not worth waking up for
        return None

    def _schedule(self, pid: int, child: _Forked, when: float) -> None:
        self._token += 1
        child.token = self._token
        heapq.heappush(self._timetable, (when, self._token, pid))

    def _keep_times(self) -> None:
        now = time.monotonic()
        while self._timetable and self._timetable[0][0] <= now:
            _, token, pid = heapq.heappop(self._timetable)
            child = self._forked.get(pid)
            if child is not None and child.token == token:
                self._check(pid, child, now)

    def _check(self, pid: int, child: _Forked, now: float) -> None:
        if child.reason == Reason.DEADLINE:  # it has had the soft signal
            os.kill(pid, signal.SIGKILL)
        elif now >= child.deadline:
            child.reason = Reason.DEADLINE
            os.kill(pid, SOFT_SIGNAL)
            self._schedule(pid, child, now + _SOFT_S)
        elif excess := self._excess(pid, child):
            child.reason = excess
            os.kill(pid, signal.SIGKILL)
        else:
            if not child.announced:
                child.announced = True
                self._send(RECORD.pack(child.number, Reason.STARTED, pid, now - child.started))
            self._schedule(pid, child, min(now + _WATCH_S, child.deadline))

    def _excess(self, pid: int, child: _Forked) -> Reason | None:
        max_bytes, max_files = self._settings["disk_bytes"], self._settings["max_files"]
        size, count = measure(child.scratch, max_bytes, max_files)
        if size <= max_bytes and touched(child.scratch):
            size += unnamed_bytes(self._proc, pid, child.scratch, self._settings["file_bytes"])
        if size > max_bytes:
            return Reason.DISK
        if count > max_files:
            return Reason.FILES
        if self._count_threads:
            with contextlib.suppress(OSError):
                number = os.open(f"{pid}/stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
                with open(number, "rb") as file:
                    threads = int(file.read().rpartition(b")")[2].split()[17])
                if threads > self._settings["max_threads"]:
                    return Reason.THREADS
        return None
