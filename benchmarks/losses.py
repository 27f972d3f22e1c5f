"""`examined`: what a run of `make faults` has lost, compared with the undisturbed one."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_rl.evaluation.run_checks import check_tokens
from agent_rl.evaluation.run_record import read_run
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory import trace
from agent_rl.trajectory.run_files import leaves, read_metrics
from benchmarks.namespaces import names_in
from benchmarks.services import SERVICE_FAULTS
from benchmarks.training_run import SAVED, STEPS, Run

WITHOUT_LAUNCHER = ("launcher", "whole process group", "newest checkpoint damaged")
"""Faults that kill the process that removes what the others leave."""
SEMAPHORE = "sem.mp-"
"""What nothing removes then, because it does not say whose it is: 32 bytes for each start."""


def examined(run: Run) -> dict[str, Any]:
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
