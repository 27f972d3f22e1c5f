import pytest

from agent_rl.data.shares import shares
from agent_rl.errors import ConfigError

COUNTS = {"a": 1, "b": 9}


def test_weights_temperature_and_counts() -> None:
    assert shares(COUNTS, {}, None, [], "w") == [0.1, 0.9]
    assert shares(COUNTS, {}, 2.0, [], "w") == [0.25, 0.75]
    assert shares(COUNTS, {"*": 1, "a": 3}, None, [], "w") == [0.75, 0.25]


def test_a_file_shares_its_weight_among_its_sources_and_rows_left_out_do_not_count() -> None:
    files = [("x", ["a", "b", "gone"]), ("y", ["gone too"])]
    assert shares(COUNTS, [2, 5], None, files, "w") == [0.1, 0.9]
    with pytest.raises(ConfigError, match="no source has a weight above 0"):
        shares(COUNTS, [0, 5], None, files, "w")
