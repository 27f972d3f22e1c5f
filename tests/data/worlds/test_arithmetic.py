"""The habits of the quickstart's world are the same in ReAct's format and as native calls."""

import random

import pytest

from agent_rl.agents.episode.format import spoken
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.data.worlds.arithmetic import WORLD
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.calculator import Calculator

TOOLS = [ToolSpec.from_class(Calculator)]
FORMATS = {"react_agent": ReactFormat(""), "tool_call_agent": ToolCallFormat(), "gateway_agent": ToolCallFormat()}


@pytest.mark.parametrize("name", WORLD.habits)
@pytest.mark.parametrize("agent", ["tool_call_agent", "gateway_agent"])
def test_a_habit_acts_the_same_in_both_formats(name, agent, tmp_path):
    def actions(row):
        for turn in WORLD.habits[name](row, random.Random(7)):
            try:
                step = FORMATS[row["agent_name"]].parse(turn, TOOLS)
                yield [(call.name, call.arguments) for call in step.calls], spoken(step.answer or "").strip()
            except MalformedActionError:
                yield "malformed"

    (row,) = WORLD.write(tmp_path, 1, {"test": 1})["test"]
    acted = list(actions({**row, "agent_name": agent}))
    assert acted
    if name == "malformed":  # the kinds of malformed calls differ, and with them what is drawn after
        assert acted[0] == "malformed"
    else:
        assert acted == list(actions(row))
