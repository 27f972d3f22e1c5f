"""A zygote: the process that has loaded the packages and forks one child per execution.

A zygote is exec'ed with a clean environment, not just forked from the trainer, so that children contain none of the
trainer's memory. A zygote never reads a program, its input or its output, which pass through descriptors that the
zygote only forwards. The zygote forks, waits, enforces deadlines, and checks disk and threads of long-running programs.
A program can slow down such a check, so all deadlines are enforced between checks. When the zygote's control socket
closes, the zygote kills every process that it started, and exits.

The zygote runs without site-packages and imports this folder under another package name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import json
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .child import NOT_CONFINED_EXIT, ChildSettings, Job, run
from .layers import Confinement, Plan
from .namespace import enter_namespace
from .probe import PARTS, probe
from .protocol import FORK, ORDER, PACKET_BYTES, RECORD, SOFT_SIGNAL, Op, Reason, ZygoteSettings
from .run_queue import PATIENCE, run_queue
from .scratch import ScratchRoot, excess, remove_tree, sweep
from .syscalls import PR_SET_DUMPABLE, PR_SET_PDEATHSIG, call
from .warm import preload, reset_signals

_WATCH_S = 0.1
_LEAST_S = 0.005  # minimum time between readings of a child's CPU time
_LATE_S = 0.25  # a program that ends at most this many seconds late counts as on time
_FORK_S = 15.0  # time limit for retrying a fork; a program that uses up all process ids is detected sooner
_FORK_AGAIN_S = 0.02
_LACKING = (errno.EAGAIN, errno.ENOMEM)
_CORES = len(os.sched_getaffinity(0))
_SOFT_S = 0.1  # seconds between the soft signal and SIGKILL
_OOM_SCORE = "500"  # if memory runs out, programs are killed before the trainer
_JOB_DESCRIPTORS = 4
_RECORDS_BYTES = PACKET_BYTES // RECORD.size * RECORD.size


@dataclass(slots=True)
class _Forked:
    pid: int
    number: int
    started: float
    limit_s: float  # limit on the child's CPU time, and on its run time excluding waits for a core
    began: float  # time at which the limit started
    deadline: float
    scratch: str
    due: float  # time of the next check of the child's run time and CPU time
    look: float  # time of the next check of the child's disk use and threads
    cpu_before: float = 0.0  # the child's CPU seconds when its time limit started
    waited_before: float = 0.0
    waited_s: float = 0.0  # how long the child has waited for a core since its time limit started
    reason: Reason = Reason.EXITED
    announced: bool = False

    def leave(self) -> None:
        """Stop all checks of this child."""
        self.due = self.look = math.inf

    def cpu_s(self) -> float:
        """Return the CPU seconds of all threads of the program since the time limit started."""
        try:
            return time.clock_gettime(~self.pid << 3 | 2) - self.cpu_before  # as in clock_getcpuclockid
        except OSError:  # the child has ended
            return 0.0


def main(descriptor: int) -> None:
    """Serve the control socket `descriptor` until its other end is closed; in a child, run its program."""
    job = _serve(descriptor)
    if job is not None:
        run(job)


def _serve(descriptor: int) -> Job | None:
    reset_signals()
    control = socket.socket(fileno=descriptor)
    settings = ZygoteSettings(**json.loads(control.recv(PACKET_BYTES)))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)
    root = None
    try:
        sweep(settings.scratch_parent)
        root = ScratchRoot(settings.scratch_parent)
        zygote = _Zygote(control, settings, root)
    except Exception as error:  # noqa: BLE001 - the trainer gets the error, and returns it for each run
        failure = {"error": traceback.format_exc()[-4000:], "errno": getattr(error, "errno", None)}
        control.send(json.dumps(failure).encode())
        if root is not None:
            remove_tree(root.path)
        return None
    try:
        job = zygote.serve()
        if job is not None:
            return job
    except OSError:  # nobody needs the error: the trainer has exited, or reads the traceback itself
        with contextlib.suppress(OSError):
            traceback.print_exc()
    zygote.close()
    return None


def _choose(settings: ZygoteSettings, readable: list[str], scratches: str) -> tuple[Plan | None, dict[str, Any]]:
    """Return the layers to use (None if they do not suffice), and the greeting's report about them."""
    if settings.layers is not None:
        return Plan(frozenset(settings.layers), tuple(readable), scratches), {}
    report = probe(readable)
    plan = report.plan or (probe(readable, PARTS).plan if settings.unsafe else None)
    if plan is None and settings.unsafe:
        plan = Plan(frozenset(), tuple(readable), scratches)
    plan = None if plan is None else replace(plan, scratches=scratches)
    report_data = {
        "isolated": report.plan is not None,
        "layers": sorted(plan.layers if plan is not None else ()),
        "missing": report.missing,
        "acts": report.acts,
    }
    return plan, {"report": report_data}


class _Zygote:
    def __init__(self, control: socket.socket, settings: ZygoteSettings, root: ScratchRoot) -> None:
        self._control, self._settings, self._root = control, settings, root
        packages = root.link(settings.package_files)
        sys.path.append(packages)
        sys.argv = [""]
        readable = [packages, *settings.readable]
        plan, self._greeting = _choose(settings, readable, root.path)
        seeds = preload(settings.preload)
        layers = plan.layers if plan is not None else frozenset()
        self._in_namespace = "namespace" in layers
        proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)  # opened now: the namespace will lack /proc
        self._run_queue = partial(run_queue, proc=proc)
        self._excess = partial(excess, proc, limits=settings, count_threads="uid" not in layers)
        if self._in_namespace:
            enter_namespace(readable, root.path)
        confinement = Confinement(plan) if plan is not None else None
        self._failure, failing = os.pipe()
        self._wake, self._waker = os.pipe()
        own = [control.fileno(), root.lock, proc, failing, self._failure, self._wake, self._waker]
        inherited = max(own + (confinement.descriptors if confinement else [])) + 1 + _JOB_DESCRIPTORS
        for number in (control.fileno(), self._failure, self._wake, self._waker):
            os.set_blocking(number, False)
        self._for_children = ChildSettings(confinement, settings.file_bytes, seeds, failing, inherited)
        self._by_pid: dict[int, _Forked] = {}
        self._by_number: dict[int, _Forked] = {}
        self._waiting: dict[int, tuple[bytes, list[int], float]] = {}
        """Arguments of the failed calls to `_fork` that will be retried."""
        self._cleaner = 0
        self._outbox = b""
        self._parent = os.getppid()
        signal.signal(signal.SIGCHLD, self._on_child)  # not a wakeup descriptor, which each child would have to reset
        call("prctl", PR_SET_DUMPABLE, 0)
        # Wakes `serve` when the trainer exits, even if a fork of the trainer keeps the socket open.
        call("prctl", PR_SET_PDEATHSIG, signal.SIGCHLD)
        # A child leaves `serve` and no longer needs this object, but freeing it would touch a hundred shared pages.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        gc.collect()
        gc.freeze()
        gc.disable()

    def _on_child(self, _signal: int, _frame: object) -> None:
        try:  # noqa: SIM105 - runs for every child, and `suppress` writes to more pages
            os.write(self._waker, b".")
        except OSError:  # a full pipe also wakes `serve`, and a child may have closed the pipe
            pass

    def serve(self) -> Job | None:
        """Execute orders; return a job in a child process, or None in the zygote when the trainer has exited."""
        self._control.send(json.dumps(self._greeting).encode())
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        wake = self._wake
        while os.getppid() == self._parent:
            if self._waiting and (job := self._fork_again()):
                return job
            for descriptor, _ in poll.poll(self._watch()):
                if descriptor == wake:
                    os.read(wake, 64)  # a longer buffer would not fit the interpreter's small pages
                    self._reap()
                    continue
                try:
                    order, descriptors, _, _ = socket.recv_fds(self._control, 256, _JOB_DESCRIPTORS)
                except BlockingIOError:
                    continue
                if not order:
                    return None
                if order[0] != Op.FORK:
                    self._obey(*ORDER.unpack(order))
                elif job := self._fork(order, descriptors):
                    return job
        return None

    def close(self) -> None:
        """Kill and reap all children, and remove the scratch root."""
        children = [*self._by_pid, *([self._cleaner] if self._cleaner else [])]
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        if not self._in_namespace:  # in a namespace, the root is a mount, which the trainer removes
            remove_tree(self._root.path)

    def _obey(self, op: int, number: int, limit_s: float) -> None:
        child = self._by_number.get(number)
        if child is None:  # the child has already ended, or has not been forked yet
            if waiting := self._waiting.pop(number, None):
                _close(waiting[1])
                self._send(RECORD.pack(number, Reason.KILLED, signal.SIGKILL, 0.0, 0.0))
            return
        if op == Op.RESUME:
            now = time.monotonic()
            child.cpu_before += child.cpu_s()
            child.waited_before, child.waited_s = self._run_queue(child.pid)[1], 0.0
            child.limit_s, child.began, child.deadline = limit_s, now, now + limit_s
            child.due = child.look = min(now + _WATCH_S, child.deadline)
            os.kill(child.pid, signal.SIGCONT)
            return
        child.leave()
        if op == Op.KILL:
            child.reason = Reason.KILLED
        late = child.reason == Reason.DEADLINE  # whether the soft signal was already sent
        os.kill(child.pid, signal.SIGKILL if op == Op.KILL or late else signal.SIGSTOP)

    def _fork(self, order: bytes, descriptors: list[int], until: float = math.inf) -> Job | None:
        """Fork a child; if this fails, retry later, but not after `until`."""
        _, number, flags, code_bytes, limit_s, memory_bytes = FORK.unpack(order)
        started = time.monotonic()
        scratch = ""
        try:
            scratch = self._root.take()
            pid = os.fork()
        except OSError as error:
            if scratch:
                self._root.give_back(scratch)
            until = min(until, started + _FORK_S)
            if error.errno in _LACKING and started < until:
                self._waiting[number] = order, descriptors, until
                for child in self._by_pid.values():  # a child may be holding the resource that ran out
                    child.look = min(child.look, started)
                return None
            pid = -1
            self._send(RECORD.pack(number, Reason.NOT_FORKED, error.errno or 0, 0.0, 0.0))
        if pid == 0:
            for _, waiting, _ in self._waiting.values():
                _close(waiting)
            return self._for_children, number, tuple(descriptors), scratch, flags, code_bytes, limit_s, memory_bytes
        _close(descriptors)
        if pid > 0:
            due = started + min(_WATCH_S, limit_s)
            child = _Forked(pid, number, started, limit_s, started, started + limit_s, scratch, due, due)
            self._by_pid[pid] = self._by_number[number] = child
        return None

    def _fork_again(self) -> Job | None:
        for number in list(self._waiting):
            if job := self._fork(*self._waiting.pop(number)):
                return job
        return None

    def _reap(self) -> None:
        records, scratches = b"", []
        while self._by_pid or self._cleaner:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                break
            pid = ended.si_pid
            if pid != self._cleaner and time.monotonic() - self._by_pid[pid].began > _WATCH_S:
                self._note_wait(self._by_pid[pid])  # reads the waiting time before the kernel discards it
            _, status, usage = os.wait4(pid, 0)
            if pid == self._cleaner:
                self._cleaner = 0
                continue
            if status >> 8 == NOT_CONFINED_EXIT:
                self._note_failures()
            child = self._by_pid.pop(pid)
            del self._by_number[child.number]
            scratches.append(child.scratch)
            now, cpu_s = time.monotonic(), usage.ru_utime + usage.ru_stime - child.cpu_before
            is_timed = child.reason == Reason.EXITED and child.due < math.inf
            if is_timed and (now > child.deadline + _LATE_S or cpu_s > child.limit_s):
                child.reason = Reason.DEADLINE  # the child ended by itself, but too late
            own_s = max(cpu_s, now - child.began - child.waited_s)
            records += RECORD.pack(child.number, child.reason, status, now - child.started, own_s)
        if records:
            self._send(records)
        for scratch in scratches:  # done after sending the records, so that the trainer does not wait
            self._root.give_back(scratch)
        if self._root.used and not self._cleaner:
            self._clean()

    def _clean(self) -> None:
        """Remove programs' files in a separate process, so that other programs do not have to wait."""
        try:
            pid = os.fork()
        except OSError:  # no process can be created, so the removal is tried again when another program ends
            return
        if pid == 0:
            try:
                call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
                os.nice(19)
                for path in self._root.used:
                    remove_tree(path)
            finally:
                os._exit(0)
        self._cleaner = pid
        self._root.used.clear()

    def _note_failures(self) -> None:
        """Read the numbers of unconfined children; only a child that has not started its program can write them."""
        with contextlib.suppress(BlockingIOError):
            while number := int.from_bytes(os.read(self._failure, 8), "little"):
                self._by_number[number].reason = Reason.NOT_CONFINED

    def _send(self, records: bytes) -> None:
        """Send the records that fit and keep the rest for later, because a zygote must not wait for the trainer."""
        self._outbox += records
        try:
            while self._outbox:
                self._control.send(self._outbox[:_RECORDS_BYTES])
                self._outbox = self._outbox[_RECORDS_BYTES:]
        except BlockingIOError:
            pass

    def _watch(self) -> float | None:
        """Check the times of all due children and the disk use of one child; return the milliseconds to the next check.

        Return None if no check is pending.
        """
        now, due = time.monotonic(), math.inf
        first: _Forked | None = None
        for child in self._by_pid.values():
            if child.due <= now:
                self._check(child, now)
            if child.look <= now and (first is None or child.look < first.look):
                first = child
        if first is not None:
            self._look(first, now)
        for child in self._by_pid.values():
            due = min(due, child.due, child.look)
        if self._outbox:
            self._send(b"")
            due = min(due, now + _FORK_AGAIN_S)
        if self._waiting:
            due = min(due, now + _FORK_AGAIN_S)
        return None if due == math.inf else max(0.0, (due - time.monotonic()) * 1000)

    def _check(self, child: _Forked, now: float) -> None:
        if child.reason == Reason.DEADLINE:  # the child has already received the soft signal
            child.leave()
            os.kill(child.pid, signal.SIGKILL)
            return
        left_s = child.limit_s - child.cpu_s()
        is_ready = now >= child.deadline and left_s > 0 and self._note_wait(child)
        if left_s <= 0 or (now >= child.deadline and not is_ready) or now >= child.began + PATIENCE * child.limit_s:
            child.reason, child.look = Reason.DEADLINE, math.inf
            child.due = now + (_SOFT_S if left_s > 0 else _SOFT_S / _CORES)
            os.kill(child.pid, SOFT_SIGNAL)
        else:
            child.due = max(now + _LEAST_S, min(now + left_s / _CORES, child.deadline))

    def _note_wait(self, child: _Forked) -> bool:
        """Extend a child's deadline by the time it waited for a core; return whether the child may be waiting now."""
        _, waited_s, is_ready = self._run_queue(child.pid)
        child.waited_s = max(child.waited_s, waited_s - child.waited_before)
        child.deadline = child.began + child.limit_s + child.waited_s
        return is_ready

    def _look(self, child: _Forked, now: float) -> None:
        self._note_wait(child)
        if reason := self._excess(child.pid, child.scratch):
            child.leave()
            child.reason = reason
            os.kill(child.pid, signal.SIGKILL)
            return
        if not child.announced:
            child.announced = True
            self._send(RECORD.pack(child.number, Reason.STARTED, child.pid, now - child.started, 0.0))
        child.look = time.monotonic() + _WATCH_S


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
