import pytest

from agent_rl.agents.agents import AGENTS, make_conversation, make_format, make_user
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.folding import FoldingPolicy
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import ScriptedUser
from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings


def test_a_format_is_as_configured():
    settings = AgentRLSettings.from_config({"agent_rl": {"react": {"instructions": "Go.", "observation_role": "tool"}}})
    format = make_format("react_agent", settings)
    assert format.prompt([{"role": "user", "content": "?"}], [])[0] == {"role": "system", "content": "Go."}
    assert format.reply("seen", []) == [{"role": "tool", "content": "seen"}]


def test_the_same_names_as_in_training():
    from agent_rl.agents.registry import BUILT_IN

    assert sorted(AGENTS) == sorted(BUILT_IN)
    for name in BUILT_IN:
        assert make_format(name, AgentRLSettings())


def test_an_unknown_name_is_told_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'react_agent'"):
        make_format("reactagent", AgentRLSettings())


def settings(**section):
    return AgentRLSettings.from_config({"agent_rl": section})


def test_the_folding_agent_is_another_with_a_policy_around_its_own():
    folding = settings(folding={"loop": "user_sim_agent", "reserve_tokens": 64}, user_sim={"user": "scripted"})
    assert isinstance(make_format("folding_agent", folding), UserSimFormat)
    assert isinstance(make_user("folding_agent", folding, {"user": {"replies": ["Yes."]}}), ScriptedUser)
    policy = ScriptedPolicy(["Hello."])
    assert isinstance(make_conversation("folding_agent", folding, policy, 128), FoldingPolicy)
    assert make_conversation("react_agent", folding, policy, 128) is policy
    with pytest.raises(ConfigError, match=r"agent_rl\.folding\.reserve_tokens: 64 is not less than"):
        make_conversation("folding_agent", folding, policy, 64)


def test_a_loop_that_cannot_be_folded_is_named():
    with pytest.raises(ConfigError, match=r"agent_rl\.folding\.loop: there is no loop 'folding_agent' to fold"):
        make_format("folding_agent", settings(folding={"loop": "folding_agent"}))


def test_only_the_agent_that_talks_with_a_user_asks_the_row_for_one():
    assert make_user("react_agent", AgentRLSettings(), None) is None
    with pytest.raises(ConfigError, match=r"extra_info\.user: the row has none"):
        make_user("user_sim_agent", AgentRLSettings(), {})
