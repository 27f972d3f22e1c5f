"""Charts: every point is drawn inside, with its value; names are text."""

import math
import re
from xml.etree import ElementTree

import pytest

from agent_rl.viewer.charts import HEIGHT, WIDTH, line_chart


def svg(chart: str) -> ElementTree.Element:
    return ElementTree.fromstring(re.sub(r".*(<svg.*</svg>).*", r"\1", chart, flags=re.DOTALL))


@pytest.mark.parametrize(
    "values", [[0.0, 1.0], [5.0], [3.0, 3.0, 3.0], [-1e-9, 1e-9], [1e12, -1e12], [0.1 * n for n in range(300)]]
)
def test_points_are_inside_and_higher_values_are_higher(values: list[float]) -> None:
    drawing = svg(line_chart("x", {"line": list(enumerate(values))}))
    points = [(float(each.get("cx", "")), float(each.get("cy", ""))) for each in drawing.iter("circle")]
    assert len(points) == len(values)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    for one, other in zip(range(len(values)), range(1, len(values)), strict=False):
        assert (values[one] < values[other]) == (points[one][1] > points[other][1])
    ticks = [float(each.text or "") for each in drawing.iter("text")][:-1]
    assert min(ticks[: len(ticks) or 1]) <= min(values) or len(values) == 1


def test_what_is_no_number_is_left_out() -> None:
    drawing = svg(line_chart("x", {"line": [(1, 1.0), (2, math.nan), (3, math.inf), (4, 2.0)]}))
    assert len(list(drawing.iter("circle"))) == 2
    assert line_chart("x", {"line": [(1, math.nan)]}) == line_chart("x", {}) == ""


def test_names_are_no_code() -> None:
    chart = line_chart("<script>", {"<img onerror=x>": [(1, 1.0)], '"': [(1, 2.0)]})
    assert "<script>" not in chart
    assert "<img" not in chart
    assert "&lt;img onerror=x&gt;: 1" in chart
