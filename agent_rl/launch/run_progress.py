"""`RunProgress`: how far a run has come, from the lines of its log and its metrics."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from agent_rl.launch.characters import named
from agent_rl.launch.output import MESSAGE, TOTAL, bare, read_metrics
from agent_rl.verl_adapter.stages import SAMPLING, Stage, read_stage

__all__ = ["RunProgress"]

LIBRARIES = "libraries"
"""What is loaded before the trainer tells anything."""
MOST_MESSAGES = 20
REWARD = "critic/score/mean"
"""A metric that every step of training has."""
KEPT = (REWARD, "agent/", "actor/", "val-", "timing_s/step", "perf/total_num_tokens", "response_length/clip_ratio")
"""How the metrics begin that are kept: verl logs 150 in each of a run's thousands of steps."""
REMEMBERED = 20
"""Steps whose duration says how long the others will take."""


class RunProgress:
    """What is known of a run at a moment.

    Args:
        clock: seconds since some moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.folder = Path()
        self.configuration: Mapping[str, Any] = {}
        """Of the run, whole."""
        self.notes: list[str] = []
        self.total: int | None = None
        """Steps of the whole run."""
        self.stage = Stage(LIBRARIES, 0, time.time())
        """What the run is doing."""
        self.started: list[tuple[str, float]] = []
        """What has been started before the first step, with the seconds that it took."""
        self.messages: list[str] = []
        """Of agent_rl to the user, each text once."""
        self.steps: dict[int, dict[str, Any]] = {}
        """Metrics by step, those that are shown, also of an earlier start that this one continues."""
        self._has_begun = False
        self._ended: list[float] = []
        self._training: list[dict[str, Any]] | None = None

    @property
    def training(self) -> list[dict[str, Any]]:
        """Metrics of the steps of training, each with its number as `step`."""
        if self._training is None:
            self._training = [each for each in self.steps.values() if REWARD in each]
        return self._training

    @property
    def step_number(self) -> int:
        """The step that is being run, or the last one that has ended; 0 before the first."""
        return max(self.stage.step, next(reversed(self.steps), 0))

    @property
    def is_training(self) -> bool:
        """Whether a step of this start has begun."""
        return self._has_begun

    @property
    def seconds_left(self) -> float | None:
        """An estimate; None before it can be made."""
        durations = [end - begin for begin, end in pairwise(self._ended)]
        last = self.training[-1] if self._ended and self.training else {}
        seconds = median(durations[-REMEMBERED:]) if durations else last.get("timing_s/step")
        if self.total is None or seconds is None:
            return None
        return max(0.0, (self.total - int(last["step"])) * seconds - (self._clock() - self._ended[-1]))

    def begin(self, folder: Path, notes: list[str], configuration: Mapping[str, Any]) -> None:
        """A run is started in this folder, where an earlier start may have left metrics."""
        self.folder, self.notes, self.configuration = folder, notes, configuration
        self.stage = Stage(LIBRARIES, 0, time.time())
        if (folder / "metrics.jsonl").is_file():
            for metrics in read_metrics(folder):
                self._add(metrics["step"], metrics)

    def line(self, line: str) -> list[str]:
        """Take a line of the log.

        Returns:
            What the user should be told: what has been started, a message.
        """
        text = bare(line)
        if found := TOTAL.search(text):
            self.total = int(found[1])
        if stage := read_stage(text):
            return self._enter(stage)
        if not text.startswith(MESSAGE) or len(self.messages) == MOST_MESSAGES:
            return []
        message = named(text.removeprefix(MESSAGE))
        if message in self.messages:
            return []
        self.messages.append(message)
        return [message]

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Take the metrics of a step; those of later steps are of an earlier start, and are trained again."""
        for later in [each for each in self.steps if each > step]:
            del self.steps[later]
        self._add(step, metrics)
        if REWARD in metrics:
            self._ended.append(self._clock())
            self._has_begun = True

    def _add(self, step: int, metrics: Mapping[str, Any]) -> None:
        kept = {sys.intern(key): value for key, value in metrics.items() if key.startswith(KEPT)}
        self.steps[step] = {**self.steps.get(step, {}), **kept, "step": step}
        self._training = None

    def _enter(self, stage: Stage) -> list[str]:
        """A part begins; before the first step, the one before it is done."""
        before = self.stage
        if (stage.what, stage.step) == (before.what, before.step):  # a second engine
            return []
        self.stage = stage
        if self._has_begun:
            return []
        self._has_begun = stage.what == SAMPLING
        seconds = max(0.0, stage.time - before.time)
        self.started.append((before.what, seconds))
        return [f"started: {before.what}, {seconds:.1f} s"]
