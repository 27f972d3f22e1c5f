import pytest

from agent_rl.errors import ConfigError
from agent_rl.loops.formats import make_format
from agent_rl.settings import AgentRLSettings


def test_a_format_is_as_configured():
    settings = AgentRLSettings.from_config({"agent_rl": {"react": {"instructions": "Go.", "observation_role": "tool"}}})
    format = make_format("react_agent", settings)
    assert format.prompt([{"role": "user", "content": "?"}], [])[0] == {"role": "system", "content": "Go."}
    assert format.reply("seen", []) == [{"role": "tool", "content": "seen"}]


def test_the_same_names_as_in_training():
    from agent_rl.loops.registry import BUILT_IN

    for name in BUILT_IN:
        assert make_format(name, AgentRLSettings())


def test_an_unknown_name_is_told_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'react_agent'"):
        make_format("reactagent", AgentRLSettings())
