from typing import Any

import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings, DataSettings


def read(**keys: Any) -> DataSettings:
    return AgentRLSettings.from_config({"agent_rl": {"data": keys}}).data


def test_nothing_is_set_by_default() -> None:
    assert not DataSettings().is_set
    assert not read().is_set
    assert read(order="shuffled").is_set
    assert read(weights=[1, 2]).weights == [1, 2]
    assert read(weights={"a": 1}).weights == {"a": 1}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"weights": {"a": 1}, "temperature": 2}, r"agent_rl\.data: weights and temperature both.*Remove one"),
        ({"weights": {"a": -1}}, r"agent_rl\.data\.weights\.a: expected a number of at least 0"),
        ({"temperature": 0.5}, r"agent_rl\.data\.temperature: expected a number of at least 1"),
        ({"order": "random"}, r"agent_rl\.data\.order: expected `file`, `shuffled` or `difficulty`"),
        ({"band": {"low": 0.8, "high": 0.2}}, r"agent_rl\.data\.band: low=0\.8 is above high=0\.2.*Swap them"),
        ({"band": {"explore": 0}}, r"agent_rl\.data\.band\.explore: expected a number above 0"),
        ({"stages": [{"until_step": 5}]}, r"stages\[0\] is the last and has until_step or until_reward"),
        ({"stages": [{}, {"weights": {"a": 1}}]}, r"stages\[0\] has no until_step or until_reward"),
        ({"stages": [{"until_steps": 5}, {}]}, r"stages\[0\]\.until_steps: unknown key.*Did you mean 'until_step'"),
        ({"replay": {"share": 0.1}}, r"agent_rl\.data\.replay\.below: missing"),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(**keys)
