import pickle

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings, RewardSettings
from agent_rl.settings.sections import ColdStartSettings


def _as_is(config):
    return config


@pytest.fixture(params=[_as_is, OmegaConf.create], ids=["dict", "omegaconf"])
def settings(request):
    return lambda config: AgentRLSettings.from_config(request.param(config))


@pytest.mark.parametrize("config", [{}, {"agent_rl": None}, {"agent_rl": {}}, {"trainer": {"device": "cpu"}}])
def test_an_absent_section_gives_the_defaults(settings, config):
    assert settings(config) == AgentRLSettings.from_config(None) == AgentRLSettings()


def test_values_are_read(settings):
    section = {
        "budget": {"max_tool_calls": 8, "tool_timeout_s": 5},
        "react": {"observation_role": "tool"},
        "reward": {"efficiency": {"penalty": 0.2}, "format": {"weight": 0}},
    }
    read = settings({"agent_rl": section})
    assert (read.budget.max_tool_calls, read.budget.tool_timeout_s) == (8, 5.0)
    assert read.react.observation_role == "tool"
    assert (read.reward.efficiency.penalty, read.reward.efficiency.floor) == (0.2, -0.5)
    assert read.reward.format.weight == 0.0


def test_interpolations_are_resolved():
    config = OmegaConf.create({"out": "runs", "agent_rl": {"trace": {"path": "${out}/trace.jsonl"}}})
    assert AgentRLSettings.from_config(config).trace.path == "runs/trace.jsonl"


@pytest.mark.parametrize(
    ("section", "key", "remedy"),
    [
        ({"rewards": {}}, "agent_rl.rewards", "Did you mean 'reward'?"),
        ({"reward": {"efficiency": {"penalty": -1}}}, "agent_rl.reward.efficiency.penalty", ""),
        ({"reward": None}, "agent_rl.reward", ""),
        (["yes"], "agent_rl", ""),
    ],
)
def test_a_wrong_key_or_value_is_named(settings, section, key, remedy):
    with pytest.raises(ConfigError) as caught:
        settings({"agent_rl": section})
    assert caught.value.key == key
    assert caught.value.remedy
    assert remedy in caught.value.remedy


def test_settings_cannot_be_changed_and_can_be_pickled():
    settings = AgentRLSettings.from_config({"agent_rl": {"reward": {"format": {"weight": 0.5}}}})
    with pytest.raises(ValueError, match="frozen"):
        settings.reward = RewardSettings()
    assert pickle.loads(pickle.dumps(settings)) == settings


def read(**section):
    return AgentRLSettings.from_config({"agent_rl": {"cold_start": section}}).cold_start


def test_a_world_and_its_stages_are_enough():
    found = read(world="text_to_sql", stages=[{"mix": {"oracle": 1}, "steps": 2}])
    assert isinstance(found, ColdStartSettings)
    assert (found.held_out, found.stages[0].lr) == (300, 3e-3)


@pytest.mark.parametrize(
    ("stages", "problem"),
    [([], "stages"), ([{"mix": {"oracle": -1}, "steps": 2}], "oracle"), ([{"mix": {}, "stepz": 2}], "steps")],
)
def test_what_cannot_be_taught_is_refused_by_its_key(stages, problem):
    with pytest.raises(ConfigError, match=problem):
        read(world="text_to_sql", stages=stages)
