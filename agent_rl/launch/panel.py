"""`RunPanel`: a run in the terminal, redrawn in place: how far it is, how it goes, and one thing that an agent did.

It is drawn between two looks at the trainer's output, by this process and no thread: at most twice a second, and when
nothing has happened once. A terminal that is too low gets less of it, a narrow one shorter lines.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel as Frame
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from agent_rl.launch.characters import named, one_line
from agent_rl.launch.output import validations
from agent_rl.launch.run_progress import RunProgress
from agent_rl.launch.screen import Screen, abortion, ending, request
from agent_rl.launch.stopping import StoppedRun
from agent_rl.launch.warnings import TERMS, components, run_warnings, series
from agent_rl.trace import parts
from agent_rl.trajectory import Trajectory

__all__ = ["RunPanel", "last_trajectory", "sparkline"]

IDLE_S = 1.0
"""Seconds after which the clock is drawn again."""
BARS = "\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"
LARGEST_LINE = 1 << 18
"""Bytes of the trace's end that are looked at."""
LOOKED_AT = 8
"""Trajectories at the trace's end from which one is taken."""
LONGEST_CHART = 60
SHORTEST_BAR = 8
LABEL, VALUE = 14, 8
"""Columns of a name and of a number."""
METRICS = {
    "reward": ("critic/score/mean", "{:+.3f}", 1),
    "success": ("agent/acc", "{:.0f} %", 100),
    "tool calls": ("agent/tool_calls", "{:.2f}", 1),
    "tool errors": ("agent/tool_errors", "{:.2f}", 1),
    "tokens/s": ("perf/total_num_tokens", "{:,.0f}", 1),
}
"""Rows: name, metric of verl, how the number is written, and what it is multiplied by first."""
_SECONDS = "timing_s/step"


class RunPanel(Screen):
    """Redraws a frame at the end of the terminal's text; what is above stays.

    Args:
        stream: the terminal.
        console: where it is drawn instead.
    """

    called = "panel"

    def __init__(self, stream: TextIO | None = None, console: Console | None = None) -> None:
        super().__init__(stream)
        self.console = console or Console(file=stream, highlight=False, emoji=False)
        self._live: Live | None = None
        self._drawn = 0.0
        self._is_new = True
        self._size = self.console.size
        self._asked = ""
        self._warnings: list[str] = []
        self._trajectory: Trajectory | None = None
        self._made: tuple[int, list[tuple[int, list[RenderableType]]]] | None = None

    @override
    def note(self, text: str) -> None:
        self.console.print(named(text), markup=False)

    @override
    def begin(self, folder: Path, notes: list[str], configuration: Mapping[str, Any]) -> None:
        super().begin(folder, notes, configuration)
        self._live = Live(
            self, console=self.console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start(refresh=True)

    @override
    def line(self, line: str) -> None:
        before = self.progress.stage
        self._is_new |= bool(self.progress.line(line)) or self.progress.stage is not before

    @override
    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        super().step(step, metrics)
        self._is_new, self._made = True, None
        self._warnings = run_warnings(self.progress.training, self.progress.configuration)
        path = ((self.progress.configuration.get("agent_rl") or {}).get("trace") or {}).get("path")
        self._trajectory = (path and last_trajectory(Path(path), step)) or self._trajectory

    @override
    def tick(self) -> None:
        if self._live is None or not (self._is_new or time.monotonic() - self._drawn > IDLE_S):
            return
        if self.console.size != self._size:  # the terminal has wrapped the old lines: nobody knows where they are
            self._size = self.console.size
            self._live.stop()
            self.console.clear()
            self._live.start()
        self._is_new, self._drawn = False, time.monotonic()
        self._live.refresh()

    @override
    def stopping(self, by: str, *, at_once: bool = False) -> None:
        self._asked, self._is_new = request(self.progress, by, at_once), True
        self.tick()

    @override
    def end(self, stopped: StoppedRun | None) -> None:
        self.close()
        for text in ending(self.progress, stopped):
            self.console.print(text, markup=False, soft_wrap=True)

    @override
    def aborted(self, by: str) -> None:
        self.close()
        self.console.print(abortion(self.progress, by), markup=False, soft_wrap=True)

    @override
    def close(self) -> None:
        """Leave the last frame in the terminal."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()
            self.console.print(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        lines = (options.height or console.size.height) - 3  # the frame, and the line of the cursor
        yield Frame(
            Group(*_fitting(self._parts(width - 4), lines)),
            title=Text(named(self.progress.folder.name), style="bold"),
            title_align="left",
            border_style="dim",
            width=width,
        )

    def _parts(self, width: int) -> list[tuple[int, list[RenderableType]]]:
        """What is shown, from the top down, each with its rank: the highest ones go where lines are missing."""
        progress = self.progress
        notes = [*progress.notes, *progress.messages[-3:]]
        return [
            (0, [_head(progress, width)]),
            (3, _started(progress, width)),
            *self._of_steps(width),
            (2, [_cut(f"! {text}", width, "yellow") for text in self._warnings[:3]]),
            (6, [_cut(f"  {text}", width, "dim") for text in notes]),
            (7, [Text()] if progress.training else []),
            (0, [_cut(self._foot(), width, "bold yellow" if self._asked else "dim")]),
            (1, _places(progress, width)),
        ]

    def _of_steps(self, width: int) -> list[tuple[int, list[RenderableType]]]:
        """The parts that change with a step; those of a thousand steps are not drawn again for the clock."""
        if self._made is None or self._made[0] != width:
            parts: list[tuple[int, list[RenderableType]]] = [
                (1, _charts(self.progress, width)),
                (4, _validations(self.progress, width)),
                (7, [Text()] if self._trajectory else []),
                (5, _conversation(self._trajectory, width)),
            ]
            self._made = (width, parts)
        return self._made[1]

    def _foot(self) -> str:
        if self._asked:
            return self._asked
        if self.progress.is_training:
            return "Ctrl-C: end after this step, saved; twice: at once"
        return "Ctrl-C: end at once, nothing is trained yet"


def sparkline(values: Sequence[float], width: int) -> str:
    """Values as bars, the lowest and the highest of which are of the values shown.

    Args:
        values: any number; of more than `width`, a bar is the mean of its share.
        width: characters at most.
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
    """One of the last few trajectories of a trace, of this step if there is one.

    The first of them, as the last ones of a step are its longest. None where there is none, or where lines are longer
    than `LARGEST_LINE` bytes.
    """
    found: list[Trajectory] = []
    for line in islice(_last_lines(parts(path)[-1]), LOOKED_AT):
        with contextlib.suppress(ValueError):  # torn, or of another version
            found.append(Trajectory.from_json(line))
    return next((each for each in reversed(found) if each.info.get("step") == step), found[0] if found else None)


def _last_lines(path: Path) -> Iterator[bytes]:
    """The last complete lines of a file, the last one first."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LARGEST_LINE))
            lines = file.read().split(b"\n")
    except OSError:
        return
    yield from reversed(lines[(1 if size > LARGEST_LINE else 0) : -1])


def _fitting(parts: Sequence[tuple[int, list[RenderableType]]], height: int) -> list[RenderableType]:
    """The parts of the lowest ranks that have room."""
    kept: set[int] = set()
    for place in sorted(range(len(parts)), key=lambda place: parts[place][0]):
        if sum(len(parts[each][1]) for each in [*kept, place]) <= height:
            kept.add(place)
    return [line for place in sorted(kept) for line in parts[place][1]]


def _cut(text: str, width: int, style: str = "") -> Text:
    """One line, without what a terminal obeys."""
    line = Text(one_line(text, 4 * width), style=style, no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _named(name: str, text: str, width: int, style: str = "", columns: int = 6) -> Text:
    """A line that begins with its name."""
    label = Text(named(name), style="dim")
    label.truncate(columns - 1, overflow="ellipsis")
    label.pad_right(columns - label.cell_len)
    return Text.assemble(label, _cut(text, width - columns, style), no_wrap=True)


def _head(progress: RunProgress, width: int) -> RenderableType:
    """How far the run is."""
    step, total, left = progress.step_number, progress.total, progress.seconds_left
    done = progress.training[-1]["step"] if progress.training else 0
    if not progress.is_training:
        return _cut(f"starting: {progress.stage.what}, {_time(time.time() - progress.stage.time)}", width, "bold")
    text = f"step {step}" + (f" of {total}" if total else "") + f": {progress.stage.what}"
    if left is not None:
        text += f", {_time(left)} left"
    line = _cut(text, width, "bold")
    room = width - line.cell_len - 2
    if room < SHORTEST_BAR:
        return line
    table = Table.grid(padding=(0, 2))
    table.add_row(line, ProgressBar(total=total or 1, completed=done, width=room, complete_style="green"))
    return table


def _started(progress: RunProgress, width: int) -> list[RenderableType]:
    """What was started, a line each until the first step is done, then one line."""
    if progress.is_training:
        seconds = sum(seconds for _, seconds in progress.started)
        return [] if progress.training else [_cut(f"started in {_time(seconds)}", width, "dim")]
    return [_named(f"  {what}", f"{seconds:.1f} s", width, columns=2 + LABEL) for what, seconds in progress.started]


def _charts(progress: RunProgress, width: int) -> list[RenderableType]:
    """A line for each metric: name, last value, bars."""
    steps = progress.training
    rows: list[tuple[str, str, list[float]]] = []
    for name, (key, form, factor) in METRICS.items():
        values = [value for _, value in (series(steps, key) if name != "tokens/s" else _throughput(steps))]
        if values:
            rows.append((name, form.format(values[-1] * factor), values))
        if name == "reward":
            rows += _components(progress)
    chart = min(width - LABEL - VALUE - 2, LONGEST_CHART)
    lines: list[RenderableType] = []
    for name, shown, values in rows:
        line = _named(name, "", LABEL, columns=LABEL)
        lines.append(Text.assemble(line, f"{shown:>{VALUE}}  ", (sparkline(values, chart), "cyan"), no_wrap=True))
    if steps:
        malformed, unscored = (steps[-1].get(f"agent/{name}") or 0 for name in ("malformed_rate", "unscored"))
        shown = f"{malformed:.0%} of turns malformed, {unscored:.0f} trajectories unscored"
        lines.append(_cut(shown, width, "red" if unscored else "dim"))
    return lines


def _components(progress: RunProgress) -> Iterator[tuple[str, str, list[float]]]:
    """Those that say anything."""
    for name in components(progress.training, progress.configuration):
        values = [value for _, value in series(progress.training, f"agent/{name}")]
        if name not in TERMS or any(values):
            yield f"  {name}", f"{values[-1]:+.3f}", values


def _throughput(steps: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Tokens a second of all devices together, by step."""
    seconds = dict(series(steps, _SECONDS))
    tokens = series(steps, METRICS["tokens/s"][0])
    return [(step, count / seconds[step]) for step, count in tokens if seconds.get(step)]


def _validations(progress: RunProgress, width: int) -> list[RenderableType]:
    """Accuracy, or reward, of each validation."""
    found: dict[str, list[str]] = {}
    for step, metrics in progress.steps.items():
        for source, values in validations(metrics).items():
            value = values.get("acc", values.get("reward"))
            if value is not None:
                found.setdefault(source, []).append(f"{value:.2f} (step {step})")
    shown = [f"{source}: {', '.join([*values[:1], *values[1:][-3:]])}" for source, values in found.items()]
    return [_cut(f"validation {text}", width) for text in shown[:2]]


def _conversation(trajectory: Trajectory | None, width: int) -> list[RenderableType]:
    """A trajectory in three lines below a heading."""
    if trajectory is None:
        return []
    reward = f"reward {trajectory.score.total:+.2f}" if trajectory.score else "unscored"
    calls = [
        f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" + (f" = {result.text}" if result else "")
        for turn in trajectory.turns
        for call, result in zip(turn.calls, [*turn.results, *[None] * len(turn.calls)], strict=False)
    ]
    asked = next((each.content for each in reversed(trajectory.prompt) if each.role == "user"), "")
    did = "; ".join(one_line(each, 2 * width) for each in calls[:4]) or "no tool was called"
    said = trajectory.answer or (trajectory.turns[-1].text if trajectory.turns else "")
    step = trajectory.info.get("step", "?")
    turns = len(trajectory.turns)
    head = f"one of step {step}: {reward}, {turns} turn{'s' * (turns != 1)}, {len(calls)} call{'s' * (len(calls) != 1)}"
    rows = (("asked", asked), ("did", did), ("said", said))
    return [_cut(head, width, "bold"), *(_named(f"  {name}", text, width, columns=8) for name, text in rows)]


def _places(progress: RunProgress, width: int) -> list[RenderableType]:
    """Where to read on."""
    folder = os.path.relpath(progress.folder) if progress.folder.is_relative_to(Path.cwd()) else str(progress.folder)
    places = (("log", f"{folder}/train.log"), ("look", f"agent-rl view {shlex.quote(folder)}"))
    return [_named(name, text, width) for name, text in places]


def _time(seconds: float) -> str:
    whole = max(0, round(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
