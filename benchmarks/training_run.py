"""`Run`: the training of one case of `make faults`, over all its starts."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.namespaces import ROOT, other_processes
from benchmarks.services import helpers
from tests.e2e.training import overrides
from tests.support.interrupts import heed_interrupts

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
        self.ranks: Sequence[dict[str, str]] = [{}]
        """The variables of each node's launcher; rank 0 is the last."""
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.ends: list[dict[str, Any]] = []
        self.problems: list[str] = []

    def start(self) -> None:
        """Give the command, which is the same at every start."""
        command = [sys.executable, "-m", "agent_rl.cli.main", "train", str(RECIPE), *self.words]
        environment = {**os.environ, "VERL_PLATFORM": "cpu", "RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1"}
        with open(self.work / "printed", "ab") as printed:
            self.printed_from = printed.tell()
            options: Any = {"stdout": printed, "stderr": printed, "cwd": ROOT, "preexec_fn": heed_interrupts}
            self.nodes = [subprocess.Popen(command, env=environment | rank, **options) for rank in self.ranks]

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The launcher that trains."""
        return self.nodes[-1]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait(self) -> int:
        """Wait for the end of a start, and of all its processes; return the exit status."""
        began = time.monotonic()
        try:
            status = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"start {len(self.ends) + 1} has not ended after {END_S:.0f} s")
            self.kill()
            status = self.process.wait()
        waited = time.monotonic() - began
        if status != -signal.SIGKILL:  # then the next start ends what is left
            left = other_processes(self.own, LEFT_S)
            self.problems += [f"start {len(self.ends) + 1} left a process: {name_of(each)}" for each in left]
            self.kill()
        said = (self.work / "printed").read_bytes()[self.printed_from :].decode(errors="replace")
        said = re.sub(r", on [\d.]+", "", said.replace(f"{ROOT}/", "").replace(f"{sys.prefix}/", ".venv/"))
        lines = [line for line in said.splitlines() if line.startswith(("error: ", "agent_rl: ", "stopped"))]
        self.ends.append({"status": status, "seconds": round(waited, 1), "said": [line[:300] for line in lines]})
        return status

    @property
    def own(self) -> set[int]:
        """The processes of the case itself."""
        return {process.pid for process in helpers}

    def processes(self) -> list[psutil.Process]:
        """Return every process of these namespaces but those of the case itself."""
        return other_processes(self.own)

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
        wait_until(lambda: self.has_ended or self.steps_logged() >= step, END_S, every_s=0.02)
        began = time.monotonic()
        wait_until(lambda: self.has_ended or self.steps_logged() > step, delay, every_s=0.02)
        if self.has_ended and self.steps_logged() < STEPS:
            return ""
        return f"{time.monotonic() - began:.1f} s after step {step}"


def name_of(process: psutil.Process) -> str:
    """Return a process's command line, or its title."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()).strip()[:120] or process.name()
    return "gone"


def wait_until(condition: Callable[[], object], limit_s: float, every_s: float = 0.1) -> bool:
    """Whether the condition becomes true within `limit_s`; it is called every `every_s` seconds."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
