"""Says in the log what a run is doing, for the terminal: what is started before the first step, and a step's parts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

__all__ = ["ENGINE", "PREFIX", "SAMPLING", "Stage", "announce", "read_stage"]

PREFIX = "agent_rl stage: "
"""What such a line of the log begins with."""
SAMPLING = "sampling"
"""The first part of a step."""
ENGINE = "engine"


@dataclass(frozen=True)
class Stage:
    """The beginning of a part of a run.

    Attributes:
        what: the part, in a few words.
        step: of training; 0 before the first.
        time: seconds since the epoch.
    """

    what: str
    step: int
    time: float


def read_stage(line: str) -> Stage | None:
    """The stage that a line of the log tells; None for any other line."""
    if not line.startswith(PREFIX):
        return None
    try:
        found = json.loads(line.removeprefix(PREFIX))
        return Stage(str(found["what"]), int(found["step"]), float(found["time"]))
    except (ValueError, KeyError, TypeError):  # two processes have written into one line
        return None


def announce(what: str, step: int = 0) -> None:
    """Say in the log that a part of the run begins."""
    print(PREFIX + json.dumps({"what": what, "step": step, "time": round(time.time(), 2)}), flush=True)
