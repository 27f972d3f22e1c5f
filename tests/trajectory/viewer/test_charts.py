"""Charts: every point is drawn inside, with its value; names are text."""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from agent_rl.trajectory.viewer.charts import COLOURS, HEIGHT, WIDTH, Chart
from tests.trajectory.viewer.hostile import HOSTILE


def svg(chart: str) -> ElementTree.Element:
    return ElementTree.fromstring(re.sub(r".*(<svg.*</svg>).*", r"\1", chart, flags=re.DOTALL))


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], [5.0], [3.0, 3.0, 3.0], [-1e-9, 1e-9], [1e12, -1e12], [0.1 * n for n in range(300)]]
)
def test_points_are_inside_and_higher_values_are_higher(values: list[float]) -> None:
    drawing = svg(Chart("x", {"line": list(enumerate(values))}).svg())
    points = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in drawing.iter("circle")]
    assert len(points) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    for one, other in zip(range(len(values)), range(1, len(values)), strict=False):
        assert (values[one] < values[other]) == (points[one][1] > points[other][1])
    ticks = [float(each.text or "") for each in drawing.iter("text")][:-1]
    assert min(ticks[: len(ticks) or 1]) <= min(values) or len(values) == 1


def test_what_is_no_number_is_left_out() -> None:
    drawing = svg(Chart("x", {"line": [(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)]}).svg())
    assert len(list(drawing.iter("circle"))) == 2
    assert Chart("x", {"line": [(1, math.nan)]}).svg() == Chart("x", {}).svg() == ""


def test_intervals_and_marks_are_drawn_inside_with_their_values() -> None:
    bands = {"line": [(1, 0.1, 0.8), (2, 0.4, 1.3)]}
    marks = {"line": [(0, 0.3, -0.2, 0.4)], "other": [(3, 0.9, None, None)]}
    page = Chart("x", {"line": [(1, 0.5), (2, 0.6)]}, bands, marks).svg()
    drawing = svg(page)
    (band,) = drawing.iter("polygon")
    points = [tuple(map(float, point.split(","))) for point in band.get("points", "").split()]
    circles = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in drawing.iter("circle")]
    assert (len(points), len(circles)) == (4, 4)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in [*points, *circles])
    for text in ("line, measured at step 0: 0.3 [-0.2, 0.4]", "line: 0.3", "other: 0.9"):
        assert text in page, text


def test_a_picture_shows_its_lines(tmp_path: Path) -> None:
    lines, bands = {"a": [(1, 0.0), (2, 1.0)], "b": [(2, 0.5), (3, math.nan)]}, {"a": [(1, -1.0, 2.0)]}
    Chart("Reward", lines, bands, {"c": [(0, 0.5, 0.25, 0.75)]}, {"best": 1.5}).write_png(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.size == (1200, 675)
        shown = {colour for _, colour in picture.convert("RGB").getcolors(1 << 24) or ()}
    for colour in (*COLOURS[:3], COLOURS[-1]):
        assert tuple(bytes.fromhex(colour[1:])) in shown


def test_names_are_no_code_anywhere(tmp_path: Path) -> None:
    """Not on the page, not as a file's name, not as mathematics in a picture."""
    names = [*HOSTILE, "$\\frac{1}{0$", "_hidden", "x" * 10_000_000]
    for name in names:
        chart = Chart(name, {name: [(1, 1.0)]}, marks={name: [(1, 1.0, 0.5, 1.5)]} if len(name) < 10_000 else {})
        assert set(re.findall(r"<(\w+)", chart.svg())) <= {
            "figure", "figcaption", "svg", "g", "path", "text", "polyline", "circle", "title", "ul", "li", "i",
        }  # fmt: skip
        assert re.fullmatch(r"[a-z0-9_]{1,60}", chart.name)
    lines, levels = {name: [(1, 1.0)] for name in names[::4]}, dict.fromkeys(names[1::9], 1.0)
    Chart("\n".join(HOSTILE), lines, levels=levels).write_png(tmp_path / "x.png")
    for name in names[-3:]:
        Chart(name, {name: [(1, 1.0)]}).write_png(tmp_path / "x.png")
