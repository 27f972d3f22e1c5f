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
    assert table.metrics() == {"rows": 2, "visited": 1, "variants": 0, "in_band": 1}


def test_variants_have_the_source_and_difficulty_of_their_parents() -> None:
    table = RowTable(RowFacts(["b", "a"], [2.0, 1.0]), settings())
    table.count(1, 1.0)
    table.add([{"parent": 0, "generation": 1}, {"parent": 2, "generation": 2}])
    assert table.sources.tolist() == [1, 0, 1, 1]
    assert table.difficulties.tolist() == [2, 1, 2, 2]
    assert table.members(1).tolist() == [0, 2, 3]
    assert [table.generation(row) for row in range(4)] == [0, 0, 1, 2]
    assert table.metrics()["visited"] == 1
    assert table.counts == {"a": 1, "b": 1}  # of the files
