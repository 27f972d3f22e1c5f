"""Measures of agreement, against values worked out by hand."""

import pytest

from agent_rl.reasoning_rm.metrics import pearson, spearman


def test_correlations() -> None:
    one, other = [1, 2, 3, 4, 5], [2, 1, 4, 3, 5]
    assert spearman(one, other) == pytest.approx(0.8)
    assert pearson(one, [2 * value for value in other]) == pytest.approx(0.8)
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(3**0.5 / 2)  # ranks 1.5, 1.5, 3
    assert [measure([1, 1], [1, 2]) for measure in (pearson, spearman)] == [None] * 2
