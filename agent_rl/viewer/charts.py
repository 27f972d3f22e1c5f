"""Charts of values by step: as SVG text for pages that need nothing else, as PNG for a README, as CSV."""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.viewer.records import visible

__all__ = ["COLOURS", "Chart", "Point"]

COLOURS = ("#2f6fb5", "#c4622d", "#2e8b57", "#8b4fb3", "#b8860b", "#c43b6b", "#4b8f9e", "#777777")
"""Of the lines, in their order; the contrast with white and with black is at least 3."""
WIDTH, HEIGHT = 440, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 24
_LONGEST = 60
"""Characters of a name in a picture."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Chart:
    """Values by step.

    Args:
        title: of the figure.
        lines: points (step, value) by the name of the line; values that are no finite number are left out.
        bands: intervals (step, low, high) around some of the lines, by their name.
    """

    title: str
    lines: Mapping[str, Sequence[Point]]
    bands: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(points for _, points, _ in self._drawn())

    @property
    def name(self) -> str:
        """For a file: of the title's letters and digits alone."""
        return re.sub(r"[^a-z0-9]+", "_", self.title.lower()).strip("_")[:_LONGEST] or "chart"

    def svg(self) -> str:
        """The figure as HTML with an SVG, empty without a point; its colours are the page's own."""
        if not self:
            return ""
        points = [point for _, line, _ in self._drawn() for point in line]
        bounds = [value for _, _, band in self._drawn() for _, *ends in band for value in ends]
        steps, values = [point[0] for point in points], [*(point[1] for point in points), *bounds]
        first, last = min(steps), max(steps)
        ticks = _ticks(min(values), max(values))
        low, high = ticks[0], ticks[-1]

        def x(step: float) -> float:
            return _LEFT + (WIDTH - _LEFT - _RIGHT) * ((step - first) / (last - first) if last > first else 0.5)

        def y(value: float) -> float:
            return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - low) / (high - low)

        grid = "".join(
            f'<path d="M{_LEFT} {y(tick):.1f}H{WIDTH - _RIGHT}"/><text x="{_LEFT - 5}" y="{y(tick) + 4:.1f}" '
            f'text-anchor="end">{tick:.10g}</text>'
            for tick in ticks
        )
        axis = "".join(
            f'<text x="{x(end):.1f}" y="{HEIGHT - 6}" text-anchor="{"start" if end == first else "end"}">{end:g}</text>'
            for end in dict.fromkeys((first, last))
        )
        drawn, legend = "", ""
        for number, (name, line, band) in enumerate(self._drawn()):
            colour, shown = COLOURS[number % len(COLOURS)], escape(visible(name))
            if band:
                edge = [(step, top) for step, _, top in band] + [(step, bottom) for step, bottom, _ in reversed(band)]
                path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in edge)
                drawn += f'<polygon points="{path}" fill="{colour}" fill-opacity="0.18"/>'
            path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in line)
            drawn += f'<polyline points="{path}" stroke="{colour}"/>'
            drawn += "".join(
                f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="{2.5 if len(line) < 40 else 1.2}" fill="{colour}">'
                f"<title>{shown}, step {step:g}: {value:.5g}</title></circle>"
                for step, value in line
            )
            if line:
                legend += f'<li><i class="c{number % len(COLOURS)}"></i>{shown}: {line[-1][1]:.4g}</li>'
        title = escape(visible(self.title))
        return (
            f'<figure><figcaption>{title}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-label="{title}, by step"><g class="grid">{grid}{axis}</g>{drawn}</svg>'
            f'<ul class="legend">{legend}</ul></figure>'
        )

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
        lines = []
        for number, (_, points, band) in enumerate(self._drawn()):
            colour = COLOURS[number % len(COLOURS)]
            steps, values = [point[0] for point in points], [point[1] for point in points]
            lines += axes.plot(steps, values, color=colour, marker="o" if len(points) < 40 else "", markersize=3.5)
            if band:
                ends = [list(column) for column in zip(*band, strict=True)]
                axes.fill_between(ends[0], ends[1], ends[2], color=colour, alpha=0.18, linewidth=0)
        axes.set_title(_short(self.title), loc="left", fontweight="bold", parse_math=False)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#dddddd")
        axes.spines[["top", "right"]].set_visible(False)
        legend = axes.legend(lines, [" " + _short(name) for name, _, _ in self._drawn()], frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # drawn as a box
            figure.savefig(path, metadata={"Software": None})

    def write_csv(self, path: Path) -> None:
        """Write a row for each step and a column for each line; a name that a table program would compute is quoted.

        Raises:
            OSError: when the file cannot be written.
        """
        drawn = list(self._drawn())
        columns = {_cell(name): dict(points) for name, points, _ in drawn}
        for name, _, band in drawn:
            if band:
                columns[_cell(f"{name} low")] = {step: low for step, low, _ in band}
                columns[_cell(f"{name} high")] = {step: high for step, _, high in band}
        steps = sorted({step for points in columns.values() for step in points})
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["step", *columns])
            writer.writerows([f"{step:g}", *(points.get(step, "") for points in columns.values())] for step in steps)

    def _drawn(self) -> Iterator[tuple[str, list[Point], list[tuple[float, float, float]]]]:
        for name, points in self.lines.items():
            band = [each for each in self.bands.get(name, ()) if all(map(math.isfinite, each))]
            yield name, [point for point in points if math.isfinite(point[1])], band


def _short(name: str) -> str:
    shown = " ".join(visible(name[: 2 * _LONGEST]).split())
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}\u2026"


def _cell(name: str) -> str:
    shown = visible(name)
    return f"'{shown}" if shown.lstrip().startswith(("=", "+", "-", "@")) else shown


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that span the values, four to seven of them."""
    if high <= low:
        low, high = (low - abs(low) * 0.1 - 0.1, high + abs(high) * 0.1 + 0.1)
    raw = (high - low) / 4
    size = 10 ** math.floor(math.log10(raw))
    width = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    first, last = math.floor(low / width), math.ceil(high / width)
    return [number * width for number in range(first, last + 1)]
