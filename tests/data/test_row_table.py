import numpy as np

from agent_rl.data.row_table import RowFacts, RowTable
from tests.data.scripted import settings


def test_a_rate_is_half_the_latest_visit() -> None:
    table = RowTable(RowFacts(["a", "a"], [None, None]), settings(band={"low": 0.3, "high": 0.6}))
    rows = np.arange(2)
    assert table.is_in_band(rows).tolist() == [True, True]  # unknown
    table.count(0, 1.0)
    assert table.is_in_band(rows).tolist() == [False, True]
    table.count(0, 0.0)
    assert table.is_in_band(rows).tolist() == [True, True]
    assert table.metrics() == {"rows": 2, "visited": 1, "in_band": 1}
