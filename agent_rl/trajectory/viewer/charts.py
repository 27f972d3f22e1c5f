"""Draws charts of values by step, as inline SVG for pages or as PNG files."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agent_rl.errors import ConfigError
from agent_rl.trajectory.viewer.rendering import environment
from agent_rl.work.text import one_line

COLOURS = ("#2f6fb5", "#c4622d", "#2e8b57", "#8b4fb3", "#b8860b", "#c43b6b", "#4b8f9e", "#777777")
"""Colors of the lines, in order; their contrast with white and with black is at least 3."""
WIDTH, HEIGHT = 440, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 24
_LONGEST = 60
"""Maximum number of characters in a name in a PNG or in a file name."""
_FEW = 40
"""A line with fewer points than this number has a dot at every point."""
_SHIFT = 0.012
"""Horizontal distance in a PNG between the marks of two lines at the same step, as a share of the range of steps."""
_DASHES = ((1, 2), (5, 3), (7, 2))
"""Dash patterns for the levels, each with the lengths of a dash and a gap."""

Point = tuple[float, float]
Interval = tuple[float, float, float]
Mark = tuple[float, float, float | None, float | None]


class _Line(NamedTuple):
    """The finite values of one line of a chart."""

    name: str
    points: list[Point]
    band: list[Interval]
    marks: list[tuple[float, float, float, float]]

    @property
    def last(self) -> float:
        """The value in the legend: the last mark if the line has marks, otherwise the last point."""
        return self.marks[-1][1] if self.marks else self.points[-1][1]


@dataclass(frozen=True)
class Chart:
    """Values by step.

    Args:
        title: the title of the figure.
        lines: points (step, value) by the name of the line; values that are not finite are not drawn.
        bands: intervals (step, low, high) around lines, by the name of the line.
        marks: values measured only at some steps (step, value, low, high), by name; drawn as dots with their interval
            (no interval if low and high are None), in the color of the line with the same name, or in a new color.
        levels: values that are the same at every step, by name; a PNG shows them as dashed lines.
    """

    title: str
    lines: Mapping[str, Sequence[Point]]
    bands: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    marks: Mapping[str, Sequence[Mark]] = field(default_factory=dict)
    levels: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(line.points or line.marks for line in self._lines())

    @property
    def name(self) -> str:
        """The title as a file name: lower-case letters, digits and underscores."""
        return re.sub(r"[^a-z0-9]+", "_", self.title.lower()).strip("_")[:_LONGEST] or "chart"

    def svg(self, link: str = "") -> str:
        """Return the figure as HTML with an inline SVG, or an empty string if the chart has no points.

        Args:
            link: start of the URL that a click on a step opens, followed by the step's number; empty means no links.
        """
        if not self:
            return ""
        lines = list(self._lines())
        return environment().get_template("chart.html").render(
            chart=self, lines=lines, scale=_Scale.around(lines), colours=COLOURS, few=_FEW, link=link,
            width=WIDTH, height=HEIGHT, left=_LEFT, right=WIDTH - _RIGHT,
        )  # fmt: skip

    def write_png(self, path: Path) -> None:
        """Write the chart as a PNG file of 1200 by 675 pixels with a white background.

        Raises:
            ConfigError: matplotlib is not installed.
            OSError: the file cannot be written.
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
        lines = list(self._lines())
        scale = _Scale.around(lines, self.levels.values())
        names_with_marks = [line.name for line in lines if line.marks]
        legend = []
        for number, line in enumerate(lines):
            place = names_with_marks.index(line.name) - (len(names_with_marks) - 1) / 2 if line.marks else 0.0
            shift = place * _SHIFT * (scale.last - scale.first)
            legend.append((line.name, _plot(axes, line, COLOURS[number % len(COLOURS)], shift)))
        for (name, value), dashes in zip(self.levels.items(), itertools.cycle(_DASHES), strict=False):
            handle = axes.axhline(value, color=COLOURS[-1], dashes=dashes, linewidth=1.2)
            legend.append((f"{name}: {value:.4g}", handle))
        margin = 0.03 * (scale.ticks[-1] - scale.ticks[0])  # otherwise marks at the outermost ticks would be cut off
        axes.set_ylim(scale.ticks[0] - margin, scale.ticks[-1] + margin)
        axes.set_title(one_line(self.title, _LONGEST), loc="left", fontweight="bold", parse_math=False)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
        names, handles = [" " + one_line(name, _LONGEST) for name, _ in legend], [handle for _, handle in legend]
        for text in figure.legend(handles, names, frameon=False, loc="outside right upper").get_texts():
            text.set_parse_math(False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # matplotlib draws a box
            figure.savefig(path, metadata={"Software": None})

    def _lines(self) -> Iterator[_Line]:
        for name in dict.fromkeys([*self.lines, *self.marks]):
            points = [point for point in self.lines.get(name, ()) if math.isfinite(point[1])]
            band = [interval for interval in self.bands.get(name, ()) if all(map(math.isfinite, interval))]
            marks = [(step, value, value if low is None else low, value if high is None else high)
                     for step, value, low, high in self.marks.get(name, ()) if math.isfinite(value)]  # fmt: skip
            yield _Line(name, points, band, marks)


class _Scale(NamedTuple):
    """Converts steps and values to coordinates of the SVG."""

    first: float
    last: float
    ticks: list[float]

    @classmethod
    def around(cls, lines: Sequence[_Line], levels: Iterable[float] = ()) -> _Scale:
        """Return a scale that includes all steps, values, bands, marks and levels."""
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


def _plot(axes: Any, line: _Line, colour: str, shift: float) -> Any:
    """Draw a line with matplotlib, with its marks moved right by `shift` steps; return its handle for the legend."""
    if line.band:
        axes.fill_between(*np.array(line.band).T, color=colour, alpha=0.18, linewidth=0)
    handle = None
    if line.marks:
        steps, values, low, high = np.array(line.marks).T
        ends = [values - low, high - values]
        handle = axes.errorbar(steps + shift, values, ends, fmt="o", color=colour, capsize=3, markersize=7)
    if line.points or handle is None:
        # a dot on a line with marks would look like a mark
        marker = "" if line.marks or len(line.points) >= _FEW else "o"
        (handle,) = axes.plot(*np.reshape(line.points, (-1, 2)).T, color=colour, marker=marker, markersize=3.5)
    return handle


def _ticks(low: float, high: float) -> list[float]:
    """Return four to seven round numbers that span the values."""
    if high <= low:
        low, high = (low - abs(low) * 0.1 - 0.1, high + abs(high) * 0.1 + 0.1) if low else (0.0, 1.0)
    raw = (high - low) / 4
    size = 10 ** math.floor(math.log10(raw))
    width = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    first, last = math.floor(low / width), math.ceil(high / width)
    return [number * width for number in range(first, last + 1)]
