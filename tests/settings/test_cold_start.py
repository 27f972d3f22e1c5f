"""The `agent_rl.cold_start` section."""

import pytest

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings
from agent_rl.settings.cold_start import ColdStartSettings


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
