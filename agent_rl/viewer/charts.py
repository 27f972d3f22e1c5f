"""Line charts as SVG text, for pages that need nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["COLOURS", "line_chart"]

COLOURS = ("#2f6fb5", "#c4622d", "#2e8b57", "#8b4fb3", "#b8860b", "#c43b6b", "#4b8f9e", "#777777")
"""Of the lines, in their order; the contrast with white and with black is at least 3."""
WIDTH, HEIGHT = 440, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 8, 24

Point = tuple[float, float]


def line_chart(title: str, lines: Mapping[str, Sequence[Point]]) -> str:
    """A chart of values by step.

    Args:
        title: of the figure.
        lines: points (step, value) by the name of the line; values that are no finite number are left out.
    """
    kept = {name: [point for point in points if math.isfinite(point[1])] for name, points in lines.items()}
    points = [point for line in kept.values() for point in line]
    if not points:
        return ""
    steps, values = [point[0] for point in points], [point[1] for point in points]
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
    ends = dict.fromkeys((first, last))
    axis = "".join(
        f'<text x="{x(end):.1f}" y="{HEIGHT - 6}" text-anchor="{"start" if end == first else "end"}">{end:g}</text>'
        for end in ends
    )
    drawn = ""
    for (name, line), colour in zip(kept.items(), _repeated(len(kept)), strict=True):
        path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in line)
        drawn += f'<polyline points="{path}" stroke="{colour}"/>'
        drawn += "".join(
            f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="{2.5 if len(line) < 40 else 1.2}" fill="{colour}">'
            f"<title>{escape(name)}, step {step:g}: {value:.5g}</title></circle>"
            for step, value in line
        )
    legend = "".join(
        f'<li><i class="c{number % len(COLOURS)}"></i>{escape(name)}: {line[-1][1]:.4g}</li>'
        for number, (name, line) in enumerate(kept.items())
        if line
    )
    label = escape(f"{title}, by step", quote=True)
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{label}"><g class="grid">{grid}{axis}</g>{drawn}</svg><ul class="legend">{legend}</ul></figure>'
    )


def _repeated(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers that span the values, four to seven of them."""
    if high <= low:
        low, high = (low - abs(low) * 0.1 - 0.1, high + abs(high) * 0.1 + 0.1)
    raw = (high - low) / 4
    size = 10 ** math.floor(math.log10(raw))
    width = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
    first, last = math.floor(low / width), math.ceil(high / width)
    return [number * width for number in range(first, last + 1)]
