"""Charts of values by step: as SVG text for pages that need nothing else, as PNG for a README."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from agent_rl.errors import ConfigError
from agent_rl.trajectory.viewer.rendering import environment
from agent_rl.work.text import one_line

__all__ = ["COLOURS", "Chart", "Point"]

COLOURS = ("#2f6fb5", "#c4622d", "#2e8b57", "#8b4fb3", "#b8860b", "#c43b6b", "#4b8f9e", "#777777")
"""Of the lines, in their order; the contrast with white and with black is at least 3."""
WIDTH, HEIGHT = 440, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 24
_LONGEST = 60
"""Characters of a name in a picture."""
_FEW = 40
"""Below this number of points, each is a dot."""
_ASIDE = 0.012
"""How far the marks of two lines at one step stand apart in a picture, as a share of all steps."""
_DASHES = ((1, 2), (5, 3), (7, 2))
"""Of the levels: lengths of stroke and gap."""

Point = tuple[float, float]
Interval = tuple[float, float, float]
Mark = tuple[float, float, float | None, float | None]


class _Drawn(NamedTuple):
    """A line of a chart as it is drawn, without the values that are not finite."""

    name: str
    points: list[Point]
    band: list[Interval]
    marks: list[tuple[float, float, float, float]]

    @property
    def last(self) -> float:
        """The value of the legend: the last of the marks where there are any."""
        return self.marks[-1][1] if self.marks else self.points[-1][1]


@dataclass(frozen=True)
class Chart:
    """Values by step.

    Args:
        title: of the figure.
        lines: points (step, value) by the name of the line; values that are no finite number are left out.
        bands: intervals (step, low, high) around some of the lines, by their name.
        marks: values that are measured at some steps only (step, value, low, high), drawn as dots with their interval
            in the colour of the line with this name, or in one of their own; no interval where its ends are None.
        levels: values that are the same at every step, drawn in a picture as broken lines, by their name.
    """

    title: str
    lines: Mapping[str, Sequence[Point]]
    bands: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    marks: Mapping[str, Sequence[Mark]] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(line.points or line.marks for line in self._drawn())

    @property
    def name(self) -> str:
        """For a file: of the title's letters and digits alone."""
        return re.sub(r"[^a-z0-9]+", "_", self.title.lower()).strip("_")[:_LONGEST] or "chart"

    def svg(self, link: str = "") -> str:
        """The figure as HTML with an SVG, empty without a point; its colours are the page's own.

        Args:
            link: where a click on a step leads: the address before its number; empty: nowhere.
        """
        if not self:
            return ""
        lines = list(self._drawn())
        return environment().get_template("chart.html").render(
            chart=self, lines=lines, scale=_Scale.around(lines), colours=COLOURS, few=_FEW, link=link,
            width=WIDTH, height=HEIGHT, left=_LEFT, right=WIDTH - _RIGHT,
        )  # fmt: skip

    def write_png(self, path: Path) -> None:
        """Draw it as a picture of 1200 by 675 pixels on white.

        Raises:
            ConfigError: matplotlib is not installed.
            OSError: when the file cannot be written.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
            from matplotlib.ticker import MaxNLocator
        except ImportError as error:
            raise ConfigError("--png", "matplotlib is not installed", "Install agent-rl[service]") from error
        figure = Figure(figsize=(8, 4.5), dpi=150, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        drawn = list(self._drawn())
        scale = _Scale.around(drawn, self.levels.values())
        marked = [line.name for line in drawn if line.marks]
        named = []
        for number, line in enumerate(drawn):
            place = marked.index(line.name) - (len(marked) - 1) / 2 if line.marks else 0.0
            aside = place * _ASIDE * (scale.last - scale.first)
            named.append((line.name, _plot(axes, line, COLOURS[number % len(COLOURS)], aside)))
        for (name, value), dashes in zip(self.levels.items(), itertools.cycle(_DASHES), strict=False):
            named.append((f"{name}: {value:.4g}", axes.axhline(value, color=COLOURS[-1], dashes=dashes, linewidth=1.2)))
        room = 0.03 * (scale.ticks[-1] - scale.ticks[0])  # for what is drawn at the first and the last tick
        axes.set_ylim(scale.ticks[0] - room, scale.ticks[-1] + room)
        axes.set_title(one_line(self.title, _LONGEST), loc="left", fontweight="bold", parse_math=False)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
        names, handles = [" " + one_line(name, _LONGEST) for name, _ in named], [handle for _, handle in named]
        legend = figure.legend(handles, names, frameon=False, loc="outside right upper")
        for text in legend.get_texts():
            text.set_parse_math(False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # drawn as a box
            figure.savefig(path, metadata={"Software": None})

    def _drawn(self) -> Iterator[_Drawn]:
        for name in dict.fromkeys([*self.lines, *self.marks]):
            points = [point for point in self.lines.get(name, ()) if math.isfinite(point[1])]
            band = [each for each in self.bands.get(name, ()) if all(map(math.isfinite, each))]
            marks = [(step, value, value if low is None else low, value if high is None else high)
                     for step, value, low, high in self.marks.get(name, ()) if math.isfinite(value)]  # fmt: skip
            yield _Drawn(name, points, band, marks)


class _Scale(NamedTuple):
    """From steps and values to an SVG's coordinates."""

    first: float
    last: float
    ticks: list[float]

    @classmethod
    def around(cls, lines: Sequence[_Drawn], levels: Iterable[float] = ()) -> _Scale:
        """One on which everything is inside."""
        steps = [each[0] for line in lines for each in (*line.points, *line.marks)]
        values = [value for line in lines for each in (*line.points, *line.band, *line.marks) for value in each[1:]]
        values += levels
        return cls(min(steps, default=0.0), max(steps, default=0.0), _ticks(min(values or [0.0]), max(values or [0.0])))

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * share, 1)

    def y(self, value: float) -> float:
        low, high = self.ticks[0], self.ticks[-1]
        return round(HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low), 1)


def _plot(axes: Any, line: _Drawn, colour: str, aside: float) -> Any:
    """Draw a line with matplotlib, its marks so many steps aside; returns what stands for it in the legend."""
    if line.band:
        ends = [list(column) for column in zip(*line.band, strict=True)]
        axes.fill_between(ends[0], ends[1], ends[2], color=colour, alpha=0.18, linewidth=0)
    handle = None
    if line.marks:
        steps, values, low, high = (list(column) for column in zip(*line.marks, strict=True))
        below = [value - end for value, end in zip(values, low, strict=True)]
        above = [end - value for value, end in zip(values, high, strict=True)]
        steps = [step + aside for step in steps]
        handle = axes.errorbar(steps, values, [below, above], fmt="o", color=colour, capsize=3, markersize=7)
    if line.points or handle is None:
        steps, values = [point[0] for point in line.points], [point[1] for point in line.points]
        marker = "" if line.marks or len(steps) >= _FEW else "o"  # dots stand for what was measured apart
        (handle,) = axes.plot(steps, values, color=colour, marker=marker, markersize=3.5)
    return handle


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that span the values, four to seven of them."""
    if high <= low:
        low, high = (low - abs(low) * 0.1 - 0.1, high + abs(high) * 0.1 + 0.1) if low else (0.0, 1.0)
    raw = (high - low) / 4
    size = 10 ** math.floor(math.log10(raw))
    width = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    first, last = math.floor(low / width), math.ceil(high / width)
    return [number * width for number in range(first, last + 1)]
