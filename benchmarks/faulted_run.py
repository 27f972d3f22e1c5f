"""One training under one fault: `python -m benchmarks.faulted_run KIND NUMBER`, which prints the result as JSON.

The fault comes at a random moment, drawn from the kind and the number. When the run ends early, the very same command
is given again until the run has trained to its end. Then the data order, the trace and the leftovers are compared with
those of the undisturbed run. `benchmarks.faults` starts this in namespaces of its own (processes, mounts), where
nothing else runs, and /tmp and /dev/shm are empty.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from agent_rl.evaluation.run_checks import check_tokens
from agent_rl.evaluation.run_record import read_run
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory import trace
from agent_rl.trajectory.run_files import leaves, read_metrics
from benchmarks.services import SERVICE_FAULTS, Service, calculated, helpers, judge_words, judged, tool_words
from tests.e2e.training import overrides
from tests.support.interrupts import heed_interrupts

ROOT = Path(__file__).parents[1]
RECIPE = ROOT / "recipes/quickstart"
WORK = ROOT / "outputs/faults"
STEPS, SAVED = 6, 2
END_S = 900.0
"""Seconds within which a run ends after a fault: on its own, or because it is trained."""
LEFT_S = 60.0
"""Seconds within which the processes of a start end after it."""
MOST_RESUMES = 3
UNDISTURBED = "undisturbed"


def folder_of(kind: str, number: int) -> Path:
    """Return the folder of a case."""
    return WORK / re.sub(r"\W", "_", f"{kind}_{number}")


class Run:
    """The training of one case, over all its starts.

    Args:
        kind: the fault.
        number: of the kind's cases; seeds the moment and what is hit.
        undisturbed: the result of the undisturbed run.
    """

    def __init__(self, kind: str, number: int, undisturbed: dict[str, Any]) -> None:
        self.kind, self.undisturbed = kind, undisturbed
        self.random = random.Random(zlib.crc32(f"{kind} {number}".encode()))
        self.work = folder_of(kind, number)
        shutil.rmtree(self.work, ignore_errors=True)
        self.folder = self.work / "run"
        self.folder.mkdir(parents=True)
        self.tracker = self.folder / "checkpoints/latest_checkpointed_iteration.txt"
        self.words = overrides(
            self.folder,
            RECIPE / "model",
            "data.shuffle=true",
            data__max_response_length=192,
            reward__reward_manager__name="trajectory",
            reward__custom_reward_function__path="null",
            trainer__total_training_steps=STEPS,
            trainer__save_freq=SAVED,
            trainer__resume_mode="auto",
            trainer__rollout_data_dir="null",
            agent_rl__trace__tokens=True,
        )
        self.words.remove("data.shuffle=False")
        self.nodes = 2 if kind == NODE_LOST else 1
        if self.nodes > 1:
            self.words += NODE_WORDS
        self.process: subprocess.Popen[bytes] | None = None
        self.last_node: subprocess.Popen[bytes] | None = None
        self.ends: list[dict[str, Any]] = []
        self.problems: list[str] = []

    def start(self) -> None:
        """Give the command, which is the same at every start."""
        command = [sys.executable, "-m", "agent_rl.cli.main", "train", str(RECIPE), *self.words]
        environment = {**os.environ, "VERL_PLATFORM": "cpu", "RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1"}
        if self.nodes > 1:
            environment |= {"NNODES": str(self.nodes), "MASTER_ADDR": "127.0.0.1"}
        for rank in reversed(range(self.nodes)):
            environment |= {"NODE_RANK": str(rank), "RAY_TMPDIR": f"/tmp/ray/{rank}"} if self.nodes > 1 else {}
            with open(self.work / ("printed" if rank == 0 else f"printed_{rank}"), "ab") as printed:
                self.printed_from = printed.tell()
                process = subprocess.Popen(
                    command, stdout=printed, stderr=printed, cwd=ROOT, env=environment, preexec_fn=heed_interrupts
                )
            self.last_node = self.last_node if rank == 0 else process
        self.process = process

    @property
    def has_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def wait(self) -> int:
        """Wait for the end of a start, and of all its processes; return the exit status."""
        assert self.process is not None
        began = time.monotonic()
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"start {len(self.ends) + 1} has not ended after {END_S:.0f} s")
            self.kill()
            status = self.process.wait()
        waited = time.monotonic() - began
        if status != -signal.SIGKILL:  # then the next start ends what is left
            _wait_until(lambda: not self.processes(), LEFT_S)
            self.problems += [f"start {len(self.ends) + 1} left a process: {_name(each)}" for each in self.processes()]
            self.kill()
        said = (self.work / "printed").read_bytes()[self.printed_from :].decode(errors="replace")
        said = re.sub(r", on [\d.]+", "", said.replace(f"{ROOT}/", "").replace(f"{sys.prefix}/", ".venv/"))
        lines = [line for line in said.splitlines() if line.startswith(("error: ", "agent_rl: ", "stopped"))]
        self.ends.append({"status": status, "seconds": round(waited, 1), "said": [line[:300] for line in lines]})
        return status

    def processes(self) -> list[psutil.Process]:
        """Return every process of these namespaces but those of the case itself."""
        return processes_but({process.pid for process in helpers})

    def kill(self) -> int:
        """Kill all processes, in random order, and return their number."""
        found = self.processes()
        for process in self.random.sample(found, len(found)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return len(found)

    def steps_logged(self) -> int:
        files = (self.folder / name for name in ("metrics.jsonl", "metrics.new.jsonl"))
        texts = [file.read_text() if file.is_file() else "" for file in files]
        return max((int(step) for text in texts for step in re.findall(r'"step": ?(\d+)', text)), default=0)

    def wait_for_moment(self, steps: int = STEPS) -> str:
        """Wait until a random moment of these steps, and return it, or an empty text if the run failed before it."""
        step = self.random.randrange(steps)
        usual = self.undisturbed["step_s"] if step else self.undisturbed["first_step_s"]
        delay = self.random.random() * usual
        _wait_until(lambda: self.has_ended or self.steps_logged() >= step, END_S, every_s=0.02)
        began = time.monotonic()
        _wait_until(lambda: self.has_ended or self.steps_logged() > step, delay, every_s=0.02)
        if self.has_ended and self.steps_logged() < STEPS:
            return ""
        return f"{time.monotonic() - began:.1f} s after step {step}"


def processes_but(own: Collection[int] = ()) -> list[psutil.Process]:
    """Return every process of these namespaces but the first (a shell), this one, and `own`."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess):
            if process.pid not in {1, os.getpid(), *own} and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()).strip()[:120] or process.name()
    return "gone"


def _wait_until(condition: Callable[[], object], limit_s: float, every_s: float = 0.1) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


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
                if any(name in _name(process) for name in names) and "fork_server" not in _name(process):
                    found.append(process)
            return sorted(found, key=lambda each: each.pid)

        if not (when := run.wait_for_moment()):
            return ""
        if not _wait_until(lambda: run.has_ended or victims(), END_S, every_s=0.02) or not (found := victims()):
            run.problems.append("there was no process to kill")
            return when
        victim = run.random.choice(found)
        what = next(name for name in names if name in _name(victim))
        victim.kill()
        return f"{when}: {what}"

    return fault


def _kill_all(run: Run) -> str:
    when = run.wait_for_moment()
    return when and f"{when}: {run.kill()} processes"


def _lose_node(run: Run) -> str:
    if not (when := run.wait_for_moment()):
        return ""
    assert run.last_node is not None
    with suppress(psutil.NoSuchProcess):
        launcher = psutil.Process(run.last_node.pid)
        for process in (launcher, *launcher.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
    return when


def _signal(signum: signal.Signals) -> Fault:
    def fault(run: Run) -> str:
        when = run.wait_for_moment()
        assert run.process is not None
        if when:
            run.process.send_signal(signum)
        return when

    return fault


def _damage(run: Run) -> str:
    """Kill the run when two checkpoints are complete, and damage the newest one."""
    _wait_until(lambda: run.has_ended or run.steps_logged() >= 2 * SAVED, END_S, every_s=0.02)
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


def _served(kind: str, run: Run) -> tuple[list[str], Fault, Callable[[], None]]:
    is_tool = kind.startswith("tool")
    service = Service(calculated if is_tool else judged)

    def fault(run: Run) -> str:
        if not (when := run.wait_for_moment(STEPS - 2)):
            return ""
        SERVICE_FAULTS[kind](service)
        lasts = run.random.uniform(2, 10 * run.undisturbed["step_s"])
        _wait_until(lambda: run.has_ended, lasts)
        service.heal()
        return f"{when}, for {lasts:.1f} s"

    limits = {"timeout_s": 2, "total_s": 6, "attempts": 3}
    words = tool_words(run.work, service.url, **limits) if is_tool else judge_words(service.url, **limits)
    return words, fault, service.heal


DISKS = {
    "disk full for checkpoints": ("checkpoints", 100_000, 4_300_000),
    "disk full for the trace": ("traced", 10_000, 130_000),
    "disk full for the run's folder": (".", 200_000, 4_600_000),
}
"""A folder, and least and most bytes of its disk; an undisturbed run writes a little more."""
WITHOUT_LAUNCHER = ("launcher", "whole process group", "newest checkpoint damaged")
"""Faults that kill the process that removes what the others leave."""
SEMAPHORE = "sem.mp-"
"""What nothing removes then, because it does not say whose it is: 32 bytes for each start."""
KILLS = (*VICTIMS, "whole process group")
NODE_LOST = "one of two nodes lost"
NODE_WORDS = (
    *("ray_kwargs.ray_init.num_gpus=1", "ray_kwargs.ray_init.num_cpus=12"),
    *("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "actor_rollout_ref.rollout.agent.num_workers=2"),
    *(f"actor_rollout_ref.{part}.log_prob_micro_batch_size_per_gpu=4" for part in ("ref", "rollout")),
)
"""A rank and an engine for each node."""
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
        fault = _lose_node
    elif kind.startswith("SIG"):
        fault = _signal(signal.Signals[kind])
    elif kind == "newest checkpoint damaged":
        fault = _damage
    elif kind in SERVICE_FAULTS:
        words, fault, repair = _served(kind, run)
        run.words += words
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
    result = {"what": what or "the run failed before the fault", "ends": run.ends, **_examined(run)}
    if status:
        run.problems.insert(0, f"exit status {status} after {MOST_RESUMES} resumes")
    result["problems"] = run.problems
    if kind in DISKS and run.problems:  # the disk ends with this process
        shutil.copytree(run.folder, run.work / "kept")
    return result


def _examined(run: Run) -> dict[str, Any]:
    """Compare the finished run with the undisturbed one; problems go to the run."""
    problems, usual = run.problems, run.undisturbed
    metrics = read_metrics(run.folder) if (run.folder / "metrics.jsonl").is_file() else []
    steps = [line["step"] for line in metrics]
    unlogged = sorted({*range(1, STEPS + 1)} - {*steps})
    # verl logs a step after it has written the step's checkpoint: a start that ends in between leaves no metrics
    if steps != sorted({*steps}) or len(unlogged) >= len(run.ends) or any(step % SAVED for step in unlogged):
        problems.append(f"logged steps: {steps}")
    if not run.tracker.is_file() or run.tracker.read_text() != str(STEPS):
        problems.append(f"the newest checkpoint is not that of step {STEPS}")
    log = (run.folder / "train.log").read_text(errors="replace")
    is_trace_whole = "New records are lost" not in log
    order, repeated = _order(run, is_trace_whole)
    lost = 0 if is_trace_whole else sum(map(len, usual["order"])) - sum(map(len, order))
    if usual and is_trace_whole and order != usual["order"]:
        may_miss = _unscored(run) if run.kind in SERVICE_FAULTS else defaultdict(Counter)
        problems.extend(_difference(order, usual["order"], may_miss))
    found = names_in("/tmp")
    if usual and (more := set(found) - set(usual["left"])):
        problems.append(f"temporary files are left: {', '.join(sorted(more))}")
    names = sorted(path.name for path in Path("/dev/shm").iterdir())
    if shared := [name for name in names if not (name.startswith(SEMAPHORE) and run.kind in WITHOUT_LAUNCHER)]:
        problems.append(f"shared memory is left: {', '.join(shared[:5])}")
    strange = [path.name for path in run.folder.iterdir() if path.suffix in (".tmp", ".new") or ".new." in path.name]
    if strange:
        problems.append(f"files are left in the run's folder: {', '.join(strange)}")
    seconds = [line["timing_s/step"] for line in metrics]
    return {
        "steps": max(steps, default=0),
        "metrics_lost": len(unlogged),
        "repeated": repeated,
        "unscored": int(sum(line.get("agent/unscored", 0) for line in metrics)),
        "records_lost": lost,
        "order": order,
        "left": found,
        "step_s": round(sum(seconds[1:]) / max(1, len(seconds) - 1), 2),
    }


def _trace(run: Run) -> Path:
    inside = run.folder / "traced/trace.jsonl"
    return inside if inside.is_file() else run.folder / "trace.jsonl"


def _order(run: Run, is_whole: bool) -> tuple[list[list[int]], int]:
    """Return the rows of each step that were trained, and the number of steps that were trained again."""
    batches = list(trace.read_batches(_trace(run)))
    last = {batch.step: batch for batch in batches}
    traced: dict[str, list[int]] = defaultdict(list)
    for own in trace.read(_trace(run), torn="skip"):
        traced[own.id].append(own.info["index"])
    reader = trace.TokenReader(_trace(run))
    order = []
    for step in range(1, STEPS + 1):
        rows = []
        for name in last[step].names if step in last else ():
            id = name.rpartition("_")[0]
            if is_whole and (len(traced[id]) != 1 or not reader.read(id)):
                run.problems.append(f"step {step}: {id} is {len(traced[id])} times in the trace")
            rows += traced[id][:1]
        order.append(sorted(rows))
    if is_whole:
        about = json.loads((run.folder / "run.json").read_text())
        keys = dict(leaves(about["configuration"]))
        samples = read_run(run.folder, keys, about["started"])
        run.problems += list(check_tokens(samples, AgentRLSettings.model_validate(about["configuration"]["agent_rl"])))
    return order, len(batches) - len(last)


def _unscored(run: Run) -> dict[int, Counter[int]]:
    """Return the rows of each step that have a trajectory without a score."""
    found: dict[int, Counter[int]] = defaultdict(Counter)
    for own in trace.read(_trace(run), torn="skip"):
        if own.score is None:
            found[own.info["step"]][own.info["index"]] += 1
    return found


def _difference(order: list[list[int]], usual: list[list[int]], unscored: dict[int, Counter[int]]) -> Iterator[str]:
    """Yield what differs, except the rows of which a trajectory went without a score."""
    for step, (own, expected) in enumerate(zip(order, usual, strict=True), start=1):
        missing, more = Counter(expected) - Counter(own), Counter(own) - Counter(expected)
        if unexplained := sorted(row for row in missing if row not in unscored[step]):
            yield f"step {step}: rows {unexplained} were not trained"
        if more:
            yield f"step {step}: rows {sorted(more)} were trained in addition"


def names_in(folder: str) -> list[str]:
    """Return the names of the files in a folder, without what differs from run to run."""
    return sorted({re.sub(r"[0-9a-z_]{8}$|[0-9a-f]{8,}|\d+", "#", path.name) for path in Path(folder).iterdir()})


def mount_empty() -> None:
    """Mount empty file systems at /tmp and /dev/shm, in namespaces of this process's own."""
    for place in ("/tmp", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4g", "tmpfs", place], check=True)


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
