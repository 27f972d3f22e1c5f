"""One training under one fault; `benchmarks.faults` executes this module, which prints the result as JSON.

The fault comes at a random moment, drawn from the kind and the number. When the run ends early, the very same command
is given again until the run has trained to its end. Then the data order, the trace and the leftovers are compared with
those of the undisturbed run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psutil

from benchmarks.losses import examined
from benchmarks.namespaces import mount_empty
from benchmarks.services import (
    SERVICE_FAULTS,
    TOOL_FILE,
    Service,
    calculated,
    helpers,
    judge_word,
    judged,
    write_tool_file,
)
from benchmarks.training_run import END_S, MOST_RESUMES, SAVED, STEPS, Run, name_of, wait_until

Fault = Callable[[Run], str]
"""Provokes the fault in a run that has been started, and returns what was done; empty if the run failed before it."""

VICTIMS: dict[str, tuple[str, ...]] = {
    "agent-loop worker": ("ray::AgentLoopWorker",),
    "reward worker": ("ray::AgentRewardLoopWorker",),
    "engine": ("ray::SGLangHttpServer", "sglang::"),
    "TransferQueue": ("ray::SimpleStorageUnit", "ray::TransferQueueController"),
    "launcher": ("agent_rl.cli.main",),
    "trainer": ("verl.trainer.main_ppo", "ray::TaskRunner", "ray::WorkerDict"),
}
"""What SIGKILL hits: one of the processes whose command line contains one of the names."""


def _kill(names: Sequence[str]) -> Fault:
    def fault(run: Run) -> str:
        def victims() -> list[psutil.Process]:
            found = []
            for process in run.processes():
                if any(name in name_of(process) for name in names) and "fork_server" not in name_of(process):
                    found.append(process)
            return sorted(found, key=lambda each: each.pid)

        if not (when := run.wait_for_moment()):
            return ""
        if not wait_until(lambda: run.has_ended or victims(), END_S, every_s=0.02) or not (found := victims()):
            run.problems.append("there was no process to kill")
            return when
        victim = run.random.choice(found)
        what = next(name for name in names if name in name_of(victim))
        victim.kill()
        return f"{when}: {what}"

    return fault


def _kill_all(run: Run) -> str:
    when = run.wait_for_moment()
    return when and f"{when}: {run.kill()} processes"


def _lose_node(run: Run) -> str:
    if not (when := run.wait_for_moment()):
        return ""
    with suppress(psutil.NoSuchProcess):
        launcher = psutil.Process(run.nodes[0].pid)
        for process in (launcher, *launcher.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
    return when


def _signal(signum: signal.Signals) -> Fault:
    def fault(run: Run) -> str:
        when = run.wait_for_moment()
        if when:
            run.process.send_signal(signum)
        return when

    return fault


def _damage(run: Run) -> str:
    """Kill the run when two checkpoints are complete, and damage the newest one."""
    wait_until(lambda: run.has_ended or run.steps_logged() >= 2 * SAVED, END_S, every_s=0.02)
    if run.has_ended and run.steps_logged() < STEPS:
        return ""
    run.kill()
    newest = run.folder / f"checkpoints/global_step_{run.tracker.read_text()}"
    files = sorted(newest.rglob("*.pt"))
    file, how = run.random.choice(files), run.random.choice(("truncated", "emptied", "removed", "overwritten"))
    size = file.stat().st_size
    if how == "removed":
        file.unlink()
    elif how == "overwritten":
        with open(file, "r+b") as damaged:
            damaged.seek(size // 3)
            damaged.write(bytes(size // 4))
    else:
        os.truncate(file, 0 if how == "emptied" else run.random.randrange(1, size))
    return f"{file.relative_to(newest)} {how}"


def _small_disk(run: Run, name: str, least: int, most: int) -> tuple[Fault, Callable[[], None]]:
    """Make a folder of the run a file system of few bytes, and return the fault and what enlarges it."""
    place, size = run.folder / name, run.random.randrange(least, most)
    place.mkdir(exist_ok=True)
    kept = {file.name: file.read_bytes() for file in place.iterdir()}
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    for file, content in kept.items():
        (place / file).write_bytes(content)

    def enlarge() -> None:
        subprocess.run(["mount", "-o", "remount,size=1g", place], check=True)

    return lambda run: f"{size:,} bytes", enlarge


def _served(kind: str, run: Run) -> tuple[str, Fault, Callable[[], None]]:
    is_tool = kind.startswith("tool")
    service = Service(calculated if is_tool else judged)

    def fault(run: Run) -> str:
        if not (when := run.wait_for_moment(STEPS - 2)):
            return ""
        SERVICE_FAULTS[kind](service)
        lasts = run.random.uniform(2, 10 * run.undisturbed["step_s"])
        wait_until(lambda: run.has_ended, lasts)
        service.heal()
        return f"{when}, for {lasts:.1f} s"

    limits = {"timeout_s": 2, "total_s": 6, "attempts": 3}
    if is_tool:
        return f"{TOOL_FILE}={write_tool_file(run.work, service.url, **limits)}", fault, service.heal
    return judge_word(service.url, **limits), fault, service.heal


DISKS = {
    "disk full for checkpoints": ("checkpoints", 100_000, 4_300_000),
    "disk full for the trace": ("traced", 10_000, 130_000),
    "disk full for the run's folder": (".", 200_000, 4_600_000),
}
"""A folder, and least and most bytes of its disk; an undisturbed run writes a little more."""
KILLS = (*VICTIMS, "whole process group")
NODE_LOST = "one of two nodes lost"
NODE_WORDS = (
    *("ray_kwargs.ray_init.num_gpus=1", "ray_kwargs.ray_init.num_cpus=12"),
    *("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "actor_rollout_ref.rollout.agent.num_workers=2"),
    *(f"actor_rollout_ref.{part}.log_prob_micro_batch_size_per_gpu=4" for part in ("ref", "rollout")),
)
"""A rank and an engine for each node."""
NODE_RANKS = [
    {"NNODES": "2", "NODE_RANK": rank, "MASTER_ADDR": "127.0.0.1", "RAY_TMPDIR": f"/tmp/ray/{rank}"} for rank in "10"
]
KINDS = (
    *KILLS,
    NODE_LOST,
    "SIGTERM",
    "SIGINT",
    "newest checkpoint damaged",
    *DISKS,
    *SERVICE_FAULTS,
)


def execute(kind: str, number: int, undisturbed: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one case."""
    run = Run(kind, number, undisturbed)
    fault: Fault = lambda run: kind  # noqa: E731
    repair: Callable[[], None] = lambda: None  # noqa: E731
    if kind in VICTIMS:
        fault = _kill(VICTIMS[kind])
        run.words.append(f"reward.num_workers={2 * (kind == 'reward worker')}")
    elif kind == "whole process group":
        fault = _kill_all
    elif kind == NODE_LOST:
        fault, run.ranks = _lose_node, NODE_RANKS
        run.words += NODE_WORDS
    elif kind.startswith("SIG"):
        fault = _signal(signal.Signals[kind])
    elif kind == "newest checkpoint damaged":
        fault = _damage
    elif kind in SERVICE_FAULTS:
        word, fault, repair = _served(kind, run)
        run.words.append(word)
    elif kind in DISKS:
        name, least, most = DISKS[kind]
        if name == "traced":
            run.words.append(f"agent_rl.trace.path={run.folder}/traced/trace.jsonl")
        fault, repair = _small_disk(run, name, least, most)
    what = ""
    while not what and len(run.ends) <= MOST_RESUMES:
        run.start()
        what = fault(run)
        status = run.wait()
    repair()
    while status and len(run.ends) <= MOST_RESUMES:
        run.start()
        status = run.wait()
    result = {"what": what or "the run failed before the fault", "ends": run.ends, **examined(run)}
    if status:
        run.problems.insert(0, f"exit status {status} after {MOST_RESUMES} resumes")
    result["problems"] = run.problems
    if kind in DISKS and run.problems:  # the disk ends with this process
        shutil.copytree(run.folder, run.work / "kept")
    return result


def main(kind: str, number: int) -> None:
    mount_empty()
    baseline = json.loads(sys.stdin.read() or "{}")
    began = time.monotonic()
    try:
        result = execute(kind, number, baseline)
    finally:
        for helper in helpers:
            helper.kill()
    if not baseline:
        result["first_step_s"] = time.monotonic() - began - STEPS * result["step_s"] - 5
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
