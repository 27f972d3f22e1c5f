"""`RunPanel`: shows a run's progress, its metrics and an example trajectory in a panel that is redrawn in the terminal.

This process draws the panel once per second, without a thread, between two reads of the trainer's output. A short
terminal shows fewer parts, and a narrow terminal shows shorter lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel as Frame
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agent_rl.launch.output import SHARE, command, validations, written
from agent_rl.launch.run_progress import REWARD, RunProgress
from agent_rl.trajectory import Trajectory
from agent_rl.trajectory.run_files import leaves
from agent_rl.trajectory.symptoms import SymptomWarning, components, run_warnings, series
from agent_rl.trajectory.trace import parts
from agent_rl.work.text import named, one_line

PERIOD_S = 0.9
"""Minimum seconds between frames; as a result, a frame follows every other read of the trainer's output."""
BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
TAIL = 1 << 24
"""Number of bytes at the trace's end from which a random trajectory is chosen."""
MOST_CHARACTERS = 500
"""Maximum number of characters of a line, even if the terminal is wider."""
LONGEST_CHART = 60
LABEL, VALUE = 14, 19
"""Width in columns of a name, and of the first and last value."""
ABOUT = ("actor_rollout_ref.model.path", "algorithm.adv_estimator")
"""Keys that name the model and the algorithm."""
METRICS = {
    "success": ("agent/acc", SHARE),
    "tool calls": ("agent/tool_calls", "{:.2f}"),
    "tool errors": ("agent/tool_errors", "{:.2f}"),
}
"""Rows below the reward and its components: name, verl's metric, and number format."""

Row = tuple[str, str, list[float]]
"""Name, first and last value, and the values of all steps."""


class RunPanel:
    """Redraws a frame at the end of the terminal's text; earlier text stays.

    Args:
        progress: the run's progress.
        console: the terminal.
    """

    def __init__(self, progress: RunProgress, console: Console) -> None:
        self.progress, self.console = progress, console
        self._live = Live(
            self, console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._drawn = 0.0
        self._size = console.size
        self._request = ""
        self._status = ""
        self._rows: list[Row] = []
        self._validations: list[str] = []
        self._warnings: list[SymptomWarning] = []
        self._trajectory: Trajectory | None = None

    def start(self) -> None:
        """Draw the first frame, with the results of an earlier start."""
        self.step(self.progress.step_number)
        self._live.start(refresh=True)

    def step(self, step: int) -> None:
        """Read the results of a step: its metrics, and its part of the trace."""
        self._rows, self._validations = _rows(self.progress), _validations(self.progress)
        self._warnings = run_warnings(self.progress.training, self.progress.configuration)
        path = ((self.progress.configuration.get("agent_rl") or {}).get("trace") or {}).get("path")
        self._trajectory = (path and last_trajectory(Path(path), step)) or self._trajectory

    def request(self, text: str) -> None:
        """Show a message about the user's request, without waiting for the next frame."""
        self._request, self._drawn = text, 0.0
        self.tick()

    def tick(self) -> None:
        """Draw a frame if the last frame was drawn at least `PERIOD_S` seconds ago."""
        if time.monotonic() - self._drawn < PERIOD_S:
            return
        self._drawn = time.monotonic()
        if self.console.size != self._size:  # the terminal has wrapped the old lines, so their position is unknown
            self._size = self.console.size
            self._live.stop()
            self.console.clear()
            self._live.start()
        self._live.refresh()

    def stop(self, status: str) -> None:
        """Leave the last frame in the terminal, with the run's status: `trained`, `stopped`, `aborted` or `failed`."""
        self._status = status
        if self._live.is_started:
            self._live.stop()
            self.console.print(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = (options.height or console.size.height) - 3  # leaves room for the frame and the cursor's line
        yield Frame(
            Group(*_fitting(self._parts(options.max_width - 4), lines)),
            title=Text(named(self.progress.folder.name), style="bold"),
            title_align="left",
            border_style="dim",
            width=options.max_width,
        )

    def _parts(self, width: int) -> list[tuple[int, list[RenderableType]]]:
        """Return the panel's parts from top to bottom with their ranks; the highest are dropped if space is short."""
        progress = self.progress
        return [
            (0, [_head(progress, self._status)]),
            (6, [_line(f"{_about(progress)}{_time(progress.seconds)}{'' if self._status else ' so far'}", "dim")]),
            (3, _started(progress)),
            (1, _charts(self._rows, width)),
            (1, _failures(progress)),
            (4, [_line(text) for text in self._validations[:2]]),
            (7, [Text()] if self._trajectory else []),
            (5, _conversation(self._trajectory)),
            (2, [_line(f"! {text}", "yellow") for text in self._warnings[:3]]),
            (6, [_line(f"  {text}", "dim") for text in [*progress.notes, *progress.messages[-3:]]]),
            *([] if self._status else self._foot()),
        ]

    def _foot(self) -> list[tuple[int, list[RenderableType]]]:
        """Return the lines that show how to end the run and where its files are."""
        text = "Ctrl-C ends the run now; nothing has been trained yet"
        if self.progress.is_training:
            text = "Ctrl-C ends the run after this step and saves it; a second one ends it now"
        line = _line(self._request or text, "bold yellow" if self._request else "dim")
        return [(7, [Text()] if self.progress.training else []), (0, [line]), (1, _places(self.progress))]


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values as bars, scaled from the lowest to the highest value.

    Args:
        values: the values to draw; if there are more than `width` values, each bar is the mean of several.
        width: maximum number of characters.
    """
    count = min(len(values), width)
    if not count:
        return ""
    edges = [number * len(values) // count for number in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in means)


def last_trajectory(path: Path, step: int) -> Trajectory | None:
    """Choose a random trajectory of a step near the trace's end, or None if the step has no trajectory there.

    The choice is random, because the last trajectories of a step are its longest.
    """
    try:
        with open(parts(path)[-1], "rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - TAIL)
            file.seek(begin)
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in sorted(lines[bool(begin) : -1], key=crc32):
        with contextlib.suppress(ValueError):  # skips lines that another version of agent_rl wrote
            if (trajectory := Trajectory.from_json(line)).info.get("step") == step:
                return trajectory
    return None


def _fitting(parts: Sequence[tuple[int, list[RenderableType]]], height: int) -> list[RenderableType]:
    """Return the parts that fit into `height` lines, starting with the lowest ranks."""
    places: set[int] = set()
    for place in sorted(range(len(parts)), key=lambda place: parts[place][0]):
        if sum(len(parts[each][1]) for each in [*places, place]) <= height:
            places.add(place)
    return [line for place in sorted(places) for line in parts[place][1]]


def _line(text: str, style: str = "") -> Text:
    """Return one line without control characters; it is cut at the terminal's width."""
    return Text(one_line(text, MOST_CHARACTERS), style=style, no_wrap=True, overflow="ellipsis")


def _entry(name: str, text: str, columns: int) -> Text:
    """Return a line that starts with its name."""
    label = Text(named(name), style="dim")
    label.truncate(columns - 1, overflow="ellipsis")
    label.pad_right(columns - label.cell_len)
    return Text.assemble(label, _line(text), no_wrap=True, overflow="ellipsis")


def _head(progress: RunProgress, status: str) -> RenderableType:
    """Return the line that shows the progress, with the current stage and the time left, or how the run ended."""
    done = progress.training[-1]["step"] if progress.training else 0
    if status and not done:
        return _line(f"{status} before the first step", "bold")
    if not status and not progress.is_training:
        return _line(f"starting: {progress.stage.what}, {_time(time.time() - progress.stage.time)}", "bold")
    of_total = f" of {progress.total}" if progress.total else ""
    text = f"{status}: step {done}{of_total}"
    if not status:
        left = progress.seconds_left
        text = f"step {progress.step_number}{of_total}: {progress.stage.what}"
        text += "" if left is None else f", {_time(left)} left"
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=1, no_wrap=True)
    table.add_row(_line(text, "bold"), ProgressBar(total=progress.total or 1, completed=done, complete_style="green"))
    return table


def _about(progress: RunProgress) -> str:
    """Return the names of the model and the algorithm."""
    keys = dict(leaves(progress.configuration))
    return "".join(f"{keys[key]}, " for key in ABOUT if keys.get(key))


def _started(progress: RunProgress) -> list[RenderableType]:
    """Return one line per started part; once training has begun, return a single line until the first step is done."""
    if not progress.is_training:
        return [_entry(f"  {what}", f"{seconds:.1f} s", columns=2 + LABEL) for what, seconds in progress.started]
    seconds = sum(seconds for _, seconds in progress.started)
    return [] if progress.training else [_line(f"started in {_time(seconds)}", "dim")]


def _rows(progress: RunProgress) -> list[Row]:
    """Return the rows of the available metrics, with the components listed under the reward."""
    steps = progress.training
    component_rows = {f"  {name}": (f"agent/{name}", "{:+.3f}") for name in components(steps, progress.configuration)}
    rows: list[Row] = []
    for name, (key, form) in {"reward": (REWARD, "{:+.3f}"), **component_rows, **METRICS}.items():
        if values := [value for _, value in series(steps, key)]:
            rows.append((name, _change(values, form), values))
    seconds = dict(series(steps, "timing_s/step"))
    tokens = series(steps, "perf/total_num_tokens")
    if rates := [count / seconds[step] for step, count in tokens if seconds.get(step)]:  # for all devices together
        rows.append(("tokens/s", _change(rates, "{:,.0f}"), rates))
    return rows


def _change(values: Sequence[float], form: str) -> str:
    """Format the first and the last value."""
    first, last = (written(form, value) for value in (values[0], values[-1]))
    return f"{first} \u2192 {last}" if len(values) > 1 else last


def _charts(rows: Sequence[Row], width: int) -> list[RenderableType]:
    """Return one line per metric: name, first and last value, bars."""
    chart = max(0, min(width - LABEL - VALUE - 2, LONGEST_CHART))
    return [
        Text.assemble(_entry(name, "", LABEL), f"{change:>{VALUE}}  ", (sparkline(values, chart), "cyan"), no_wrap=True)
        for name, change, values in rows
    ]


def _failures(progress: RunProgress) -> list[RenderableType]:
    """Return the line with the failures of the last step."""
    if not progress.training:
        return []
    malformed, unscored = (progress.training[-1].get(f"agent/{name}") or 0 for name in ("malformed_rate", "unscored"))
    text = f"{malformed:.0%} of turns malformed, {unscored:.0f} trajectories unscored"
    return [_line(text, "red" if unscored else "dim")]


def _validations(progress: RunProgress) -> list[str]:
    """Return accuracy or reward of the first and the last three validations, one line per data source."""
    lines: dict[str, list[str]] = {}
    for step, metrics in progress.steps.items():
        for source, values in validations(metrics).items():
            value = values.get("acc", values.get("reward"))
            lines.setdefault(source, []).append(f"{value:.2f} (step {step})")
    return [f"validation {source}: {', '.join([*values[:1], *values[1:][-3:]])}" for source, values in lines.items()]


def _conversation(trajectory: Trajectory | None) -> list[RenderableType]:
    """Return a trajectory as a heading and four lines."""
    if trajectory is None:
        return []
    reward = f"reward {trajectory.score.total:+.2f}" if trajectory.score else "unscored"
    calls = [
        f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" + (f" = {result.text}" if result else "")
        for turn in trajectory.turns
        for call, result in zip(turn.calls, [*turn.results, *[None] * len(turn.calls)], strict=False)
    ]
    question = next((each.content for each in reversed(trajectory.prompt) if each.role == "user"), "")
    actions = "; ".join(one_line(each, MOST_CHARACTERS // 2) for each in calls[:4]) or "no tool was called"
    answer = trajectory.answer or (trajectory.turns[-1].text if trajectory.turns else "")
    turns = len(trajectory.turns)
    counts = f"{turns} turn{'s' * (turns != 1)}, {len(calls)} call{'s' * (len(calls) != 1)}"
    head = _line(f"example from step {trajectory.info.get('step', '?')}: {reward}, {counts}", "bold")
    lines: list[RenderableType] = [head, _entry("  asked", question, 8), _entry("  did", actions, 8)]
    lines.append(_entry("  said", answer, 8))
    if trajectory.ground_truth is not None:
        lines.append(_entry("  truth", f"{trajectory.ground_truth}{_verdict(trajectory)}", 8))
    return lines


def _verdict(trajectory: Trajectory) -> str:
    correctness = trajectory.score.components.get("correctness") if trajectory.score else None
    return "" if correctness is None else f": the answer is {'right' if correctness >= 1 else 'wrong'}"


def _places(progress: RunProgress) -> list[RenderableType]:
    """Return the lines that show the log's path and the viewer's command."""
    folder = os.path.relpath(progress.folder) if progress.folder.is_relative_to(Path.cwd()) else str(progress.folder)
    return [_entry("log", f"{folder}/train.log", 6), _entry("look", command("view", folder), 6)]


def _time(seconds: float) -> str:
    return str(timedelta(seconds=max(0, round(seconds))))
