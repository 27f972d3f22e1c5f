"""Measures of agreement, against values worked out by hand."""

import pytest

from agent_rl.reasoning_rm.metrics import kendall_tau, ndcg, pearson, spearman


def test_correlations() -> None:
    one, other = [1, 2, 3, 4, 5], [2, 1, 4, 3, 5]
    assert spearman(one, other) == pytest.approx(0.8)
    assert pearson(one, [2 * value for value in other]) == pytest.approx(0.8)
    assert kendall_tau(one, other) == pytest.approx(0.6)
    assert spearman([1, 1, 2], [1, 2, 3]) == pytest.approx(3**0.5 / 2)  # ranks 1.5, 1.5, 3
    assert kendall_tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / 6**0.5)
    assert [measure([1, 1], [1, 2]) for measure in (pearson, spearman, kendall_tau)] == [None] * 3
    assert ndcg([1, 2], [0, 0]) == 1
