import pytest

from agent_rl.errors import ConfigError
from agent_rl.rewards.scorers.patterns import compiled, found


def test_patterns_are_searched() -> None:
    assert found(compiled("b+"), "abba") is True
    assert found(compiled("c"), "abba") is False
    assert found(compiled("B", ignore_case=True), "abba") is True


def test_a_search_ends() -> None:
    assert found(compiled("^(a|aa)+$"), "a" * 5_000 + "!") is None


def test_what_is_no_pattern_names_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^config.patterns: '\(' is not a regular expression"):
        compiled("(", key="config.patterns")
