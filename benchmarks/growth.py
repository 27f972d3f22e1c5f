"""Trains for hours, and checks that no process grows: `make growth`.

    python -m benchmarks.growth [hours]  # 2 hours unless given; writes docs/reference/growth.json

The quickstart's model trains until the time is over. Every ten seconds, the command reads the memory (proportional set
size without the pages of files, whose share depends on the other programs of the machine), descriptors and threads of
each process, the number of processes, and of files in /tmp and /dev/shm. The first tenth of the time is not counted.
The trend of the rest, continued to eight hours, must not exceed 1% and 8 MiB for any process, and nothing else may
become more. The training runs in namespaces of its own (`unshare`), where /tmp and /dev/shm are empty.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from agent_rl.launch.run_folder import machine, versions
from agent_rl.trajectory.run_files import read_metrics
from benchmarks.namespaces import ROOT, execute_inside, mount_empty, other_processes
from benchmarks.training_run import RECIPE
from tests.e2e.training import overrides
from tests.support.interrupts import heed_interrupts

RESULTS = ROOT / "docs/reference/growth.json"
WORK = ROOT / "outputs/growth"
EVERY_S, HORIZON_H = 10.0, 8.0
SHARE, MIB = 0.01, 8.0
"""Greatest growth of a process's memory in `HORIZON_H` hours: a share of it, and MiB."""
FOLDERS = ("/tmp", "/dev/shm")
COUNTED_APART = ("trace.jsonl", "metrics.jsonl", "train.log", "checkpoints")


class Sample(NamedTuple):
    """A process at one moment."""

    hours: float
    pss_mib: float
    descriptors: int
    threads: int
    names: dict[str, int]
    """The number of threads with each name."""


def train(hours: float) -> dict[str, Any]:
    """Train in these namespaces for `hours`, and return what was measured."""
    folder = WORK / "run"
    shutil.rmtree(WORK, ignore_errors=True)
    folder.mkdir(parents=True)
    words = overrides(
        folder,
        RECIPE / "model",
        actor_rollout_ref__actor__optim__lr=1e-6,  # trajectories stay as long as they are at first
        reward__reward_manager__name="trajectory",
        reward__custom_reward_function__path="null",
        trainer__total_epochs=10**6,
        trainer__total_training_steps=10**6,
        trainer__save_freq=100,
        trainer__rollout_data_dir="null",
        agent_rl__trace__tokens=True,
    )
    command = [sys.executable, "-m", "agent_rl.cli.main", "train", str(RECIPE), *words]
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "RAY_USAGE_STATS_ENABLED": "0"}
    with open(WORK / "printed", "wb") as printed:
        run = subprocess.Popen(
            command, stdout=printed, stderr=printed, cwd=ROOT, env=environment, preexec_fn=heed_interrupts
        )
    began, samples, counts, disk = time.monotonic(), dict[str, list[Sample]](), [], []
    while run.poll() is None and (now := (time.monotonic() - began) / 3600) < hours:
        processes = {_name(process): process for process in other_processes()}
        for name, process in processes.items():
            with suppress(psutil.NoSuchProcess):
                names = _thread_names(process.pid)
                sample = Sample(now, _pss_mib(process.pid), process.num_fds(), sum(names.values()), names)
                samples.setdefault(name, []).append(sample)
        files = sum(len(found) for place in FOLDERS for _, _, found in os.walk(place))
        counts.append((now, len(processes), files))
        disk.append((now, *(_mib(folder / name) for name in COUNTED_APART)))
        time.sleep(EVERY_S)
    if run.poll() is not None:
        sys.exit(f"the training ended early, with status {run.returncode}; its log is {folder / 'train.log'}")
    run.send_signal(signal.SIGINT)
    run.wait()
    seconds = [line["timing_s/step"] for line in read_metrics(folder)]
    tenths = [float(np.mean(part)) for part in np.array_split(seconds, 10)]
    return {"hours": now, "steps": len(seconds), "step_s": tenths, "samples": samples, "counts": counts, "disk": disk}


def judged(measured: dict[str, Any]) -> dict[str, Any]:
    """Return the trends after the first tenth of the time, and what is above the limits."""
    start = measured["hours"] / 10
    problems, processes = [], []
    for name, own in measured["samples"].items():
        late = [Sample(*each) for each in own if each[0] >= start]
        if len(late) < 0.8 * sum(count[0] >= start for count in measured["counts"]):
            continue  # the process does not live all the time; the number of processes counts it
        level, slope = _trend([each.hours for each in late], [each.pss_mib for each in late])
        growth = HORIZON_H * slope
        row = {"process": name, "pss_mib": round(level, 1), "growth_mib": round(growth, 2)}
        row |= {key: _more([getattr(each, key) for each in late]) for key in ("descriptors", "threads")}
        processes.append(row)
        if growth > SHARE * level + MIB:
            problems.append(f"{name} grows by {growth:.1f} MiB in {HORIZON_H:.0f} hours, from {level:.0f}")
        if row["descriptors"] > 0:
            problems.append(f"{name} has {row['descriptors']} more descriptors")
        if row["threads"] > 0:
            new = Counter(late[-1].names) - Counter(late[0].names)
            problems.append(f"{name} has {row['threads']} more threads ({', '.join(sorted(new))})")
    counts = {
        what: _more([count[place] for count in measured["counts"] if count[0] >= start])
        for place, what in ((1, "processes"), (2, "temporary files"))
    }
    problems += [f"there are {more} more {what}" for what, more in counts.items() if more > 0]
    apart = {name: _trend(*zip(*((row[0], row[place]) for row in measured["disk"]), strict=True))[1]
             for place, name in enumerate(COUNTED_APART, start=1)}  # fmt: skip
    return {
        "hours": round(measured["hours"], 2),
        "steps": measured["steps"],
        "step_s": [round(mean, 2) for mean in measured["step_s"]],
        "processes": sorted(processes, key=lambda row: -row["pss_mib"]),
        "more": counts,
        "mib_per_hour": {name: round(slope, 2) for name, slope in apart.items()},
        "problems": problems,
    }


def _trend(hours: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Return the value at the first time and the slope of the line with the least squares."""
    slope, start = np.polyfit(hours, values, 1)
    return float(start + slope * hours[0]), float(slope)


def _more(values: Sequence[int]) -> int:
    """Return how much the least value of the last third is above the greatest one of the first third."""
    third = max(1, len(values) // 3)
    return int(min(values[-third:]) - max(values[:third]))


def _name(process: psutil.Process) -> str:
    """Return the number of the process, with its title without the method, or the module that Python executes."""
    with suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        title = next((word for word in words if word.startswith(("ray::", "sglang::"))), "").partition(".")[0]
        module = re.search(r"-m ([\w.]+)", " ".join(words))
        return f"{title or (module[1] if module else process.name())} {process.pid}"
    return f"gone {process.pid}"


def _thread_names(pid: int) -> dict[str, int]:
    names = Counter[str]()
    for file in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):  # the thread has ended
            names[file.read_text().strip()] += 1
    return names


def _pss_mib(pid: int) -> float:
    with suppress(OSError):
        sizes = re.findall(r"^Pss_(?:Anon|Shmem):\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
        return sum(map(int, sizes)) / 1024
    return 0.0


def _mib(path: Path) -> float:
    files = [path] if path.is_file() else path.rglob("*")
    sizes = []
    for file in files:
        with suppress(OSError):
            sizes.append(file.stat().st_size)
    return sum(sizes) / 2**20


def main(hours: float) -> None:
    """Start the training in its namespaces, and write the result."""
    done = execute_inside("benchmarks.growth", "--inside", str(hours))
    done.check_returncode()
    record = {
        "command": "make growth",
        "versions": versions(),
        "machine": machine(RECIPE / "model"),
        "every_s": EVERY_S,
        **judged(json.loads(done.stdout)),
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    print("\n".join(record["problems"]) or f"nothing grew in {record['steps']:,} steps")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        mount_empty()
        print(json.dumps(train(float(sys.argv[2]))))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
