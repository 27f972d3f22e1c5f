"""`RunProgress`: the progress of a run, derived from its log and its metrics."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from agent_rl.launch.output import MESSAGE, TOTAL, bare
from agent_rl.trajectory.run_files import read_metrics
from agent_rl.trajectory.symptoms import series
from agent_rl.verl_adapter.stages import SAMPLING, Stage, read_stage
from agent_rl.work.text import named

LIBRARIES = "libraries"
"""The stage before the trainer's first announcement."""
MOST_MESSAGES = 20
REWARD = "critic/score/mean"
"""A metric that every training step has."""
KEPT = (REWARD, "agent/", "actor/", "val-", "timing_s/step", "perf/total_num_tokens", "response_length/clip_ratio")
"""Prefixes of the metrics to keep, because verl logs 150 metrics in each of a run's thousands of steps."""
MOST_STEPS = 2000
"""If there are more steps than this, only the newest half of this number, steps with a validation, and every 2nd, 4th,
8th, ... of the other steps are kept."""
REMEMBERED = 20
"""Number of latest steps whose durations predict the remaining time."""


class RunProgress:
    """The current progress of a run.

    Args:
        clock: returns seconds since an arbitrary moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.folder = Path()
        self.configuration: Mapping[str, Any] = {}
        """The run's whole configuration."""
        self.notes: list[str] = []
        self.total: int | None = None
        """Number of steps in the whole run."""
        self.stage = Stage(LIBRARIES, 0, time.time())
        """The run's current stage."""
        self.started: list[tuple[str, float]] = []
        """The parts started before the first step, each with its duration in seconds."""
        self.messages: list[str] = []
        """agent_rl's messages to the user, without repetitions."""
        self.steps: dict[int, dict[str, Any]] = {}
        """The displayed metrics by step, including metrics of an earlier start of the same run."""
        self.is_training = False
        """Whether a step has begun since the run was last started."""
        self._last_end: float | None = None
        self.begun: float | None = None
        """The time on the clock when the run was last started."""

    @property
    def seconds(self) -> float:
        """Seconds since the run was last started, or 0 before it starts."""
        return 0.0 if self.begun is None else self._clock() - self.begun

    @property
    def training(self) -> list[dict[str, Any]]:
        """Metrics of the training steps, each with its number as `step`."""
        return [metrics for metrics in self.steps.values() if REWARD in metrics]

    @property
    def step_number(self) -> int:
        """The current step, or the last step that has ended; 0 before the first step."""
        return max(self.stage.step, next(reversed(self.steps), 0))

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end, or None until the first step since the last start has ended."""
        steps = self.training
        durations = [seconds for _, seconds in series(steps[-REMEMBERED:], "timing_s/step")]
        if self.total is None or self._last_end is None or not durations:
            return None
        since = self._clock() - self._last_end
        return max(0.0, (self.total - int(steps[-1]["step"])) * median(durations) - since)

    def begin(self, folder: Path, notes: list[str], configuration: Mapping[str, Any]) -> None:
        """Record that a run has been started in this folder, and read the metrics of an earlier start."""
        self.folder, self.notes, self.configuration, self.begun = folder, notes, configuration, self._clock()
        self.stage = Stage(LIBRARIES, 0, time.time())
        if (folder / "metrics.jsonl").is_file():
            for metrics in read_metrics(folder):
                self._add(metrics["step"], metrics)

    def line(self, line: str) -> list[str]:
        """Process a line of the log.

        Returns:
            Lines to show to the user: a message, or a part that has been started.
        """
        text = bare(line)
        if match := TOTAL.search(text):
            self.total = int(match[1])
        if stage := read_stage(text):
            return self._enter(stage)
        message = named(text.removeprefix(MESSAGE))
        if not text.startswith(MESSAGE) or message in self.messages or len(self.messages) == MOST_MESSAGES:
            return []
        self.messages.append(message)
        return [message]

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Store a step's metrics, and drop an earlier start's metrics of later steps, which this start trains again."""
        self.steps = {number: earlier for number, earlier in self.steps.items() if number <= step}
        self._add(step, metrics)
        if REWARD in metrics:
            self._last_end, self.is_training = self._clock(), True

    def _add(self, step: int, metrics: Mapping[str, Any]) -> None:
        selected = {sys.intern(key): value for key, value in metrics.items() if key.startswith(KEPT)}
        self.steps[step] = {**self.steps.get(step, {}), **selected, "step": step}
        if len(self.steps) > MOST_STEPS:
            newest = MOST_STEPS // 2
            every = 1 << (step // newest).bit_length()
            for number in list(self.steps)[:-newest]:
                if number % every and not any(key.startswith("val-") for key in self.steps[number]):
                    del self.steps[number]

    def _enter(self, stage: Stage) -> list[str]:
        """Enter a stage; before the first step, report the stage that has ended."""
        before = self.stage
        if (stage.what, stage.step) == (before.what, before.step):  # another engine has already announced this stage
            return []
        self.stage = stage
        if self.is_training:
            return []
        self.is_training = stage.what == SAMPLING
        if self.is_training:  # steps after the checkpoint from which the run resumes are trained again
            self.steps = {number: earlier for number, earlier in self.steps.items() if number < stage.step}
        seconds = max(0.0, stage.time - before.time)
        self.started.append((before.what, seconds))
        return [f"started: {before.what}, {seconds:.1f} s"]
