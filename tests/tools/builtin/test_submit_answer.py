"""Handing in an answer ends the episode; the answer may be structured."""

import asyncio

import pytest

from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import ConfigError
from agent_rl.tools import ToolSession, ToolSpec, load_tools
from agent_rl.tools.builtin.submit_answer import SubmitAnswer
from agent_rl.trajectory import StopReason, ToolStatus

STRUCTURED = """
tools:
  - name: calculator
  - name: submit_answer
    parameters:
      type: object
      properties: {town: {type: string}, degrees: {type: integer}}
      required: [town, degrees]
"""


def episode(specs, *turns):
    async def main():
        async with ToolSession(specs, default_timeout_s=5) as session:
            return await run_episode(ScriptedPolicy(turns), ReactFormat(), session, [], EpisodeBudget())

    return asyncio.run(main())


def action(tool, arguments):
    return f"Action: {tool}\nAction Input: {arguments}"


def test_the_answer_ends_the_episode():
    trajectory = episode(
        [ToolSpec.from_class(SubmitAnswer)], action("submit_answer", '{"answer": "42"}'), "never asked"
    )
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "42")
    (result,) = trajectory.results
    assert (result.status, result.text) == (ToolStatus.OK, "The answer was submitted.")
    assert trajectory.turns[-1].observation is None


def test_a_structured_answer_is_checked_and_given_as_json(tmp_path):
    (tmp_path / "tools.yaml").write_text(STRUCTURED)
    trajectory = episode(
        load_tools(tmp_path / "tools.yaml"),
        action("calculator", "6*7"),
        action("submit_answer", '{"town": "Zürich"}'),
        action("submit_answer", '{"town": "Zürich", "degrees": "21"}'),
    )
    assert [result.status for result in trajectory.results] == [
        ToolStatus.OK,
        ToolStatus.INVALID_ARGUMENTS,
        ToolStatus.OK,
    ]
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, '{"degrees": 21, "town": "Zürich"}')


def test_there_is_nothing_to_configure(tmp_path):
    (tmp_path / "tools.yaml").write_text("tools: [{name: submit_answer, config: {schema: {}}}]")
    with pytest.raises(ConfigError, match=r"config\.schema: unknown key"):
        load_tools(tmp_path / "tools.yaml")
