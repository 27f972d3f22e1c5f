"""Handing in an answer ends the episode; the answer may be structured."""

from agent_rl.tools import ToolSpec, load_tools
from agent_rl.tools.builtin.submit_answer import SubmitAnswer
from agent_rl.trajectory import StopReason, ToolStatus
from tests.agents.episodes import act, run

STRUCTURED = """
tools:
  - name: calculator
  - name: submit_answer
    parameters:
      type: object
      properties: {town: {type: string}, degrees: {type: integer}}
      required: [town, degrees]
"""


def submitted(arguments):
    return f"Action: submit_answer\nAction Input: {arguments}"


def test_the_answer_ends_the_episode():
    trajectory = run([submitted('{"answer": "42"}'), "never asked"], ToolSpec.from_class(SubmitAnswer))
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "42")
    (result,) = trajectory.results
    assert (result.status, result.text) == (ToolStatus.OK, "The answer was submitted.")
    assert trajectory.turns[-1].observation is None


def test_a_structured_answer_is_checked_and_given_as_json(tmp_path):
    (tmp_path / "tools.yaml").write_text(STRUCTURED)
    turns = [act(), submitted('{"town": "Zürich"}'), submitted('{"town": "Zürich", "degrees": "21"}')]
    trajectory = run(turns, *load_tools(tmp_path / "tools.yaml"))
    assert [result.status for result in trajectory.results] == [
        ToolStatus.OK,
        ToolStatus.INVALID_ARGUMENTS,
        ToolStatus.OK,
    ]
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, '{"degrees": 21, "town": "Zürich"}')
