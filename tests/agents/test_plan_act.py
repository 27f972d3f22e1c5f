"""Plan and act: what is read from a turn, and what the trajectory keeps of it."""

import pytest

from agent_rl.agents.plan_act import DEFAULT_INSTRUCTIONS, NO_PLAN, PlanActFormat
from agent_rl.agents.react import NO_ACTION
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.tools.builtin.calculator import Calculator
from agent_rl.trajectory import StopReason, Trajectory
from tests.agents.episodes import ANSWER, act, run

TOOLS = [ToolSpec.from_class(Calculator)]
PLAN = "Plan:\n1. Multiply.\n2. Answer.\n"
ACT = f"Step: 1\n{act()}"


def play(*texts, form=None, **budget):
    return run(list(texts), form=form or PlanActFormat(), **budget)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("Plan:\n1. Multiply.\n2. Answer.\n", ["Multiply.", "Answer."]),
        ("Plan:\n1) Multiply\n   the two.\n2) Answer\n\n", ["Multiply the two.", "Answer"]),
        ("Plan:\n- Multiply\n- Answer\n", ["Multiply", "Answer"]),
        ("Plan: multiply, then answer\n", ["multiply, then answer"]),
        ("Plan:\nmultiply\nanswer\n", ["multiply", "answer"]),
        ("I see.\n plan :\n1. größer 日本\n", ["größer 日本"]),
    ],
)
def test_plan_is_read(text, steps):
    step = PlanActFormat().parse(text + ACT, TOOLS)
    assert step.notes == {"plan": steps, "step": 1}
    assert step.calls[0].arguments == {"expression": "6*7"}


WITHOUT = (ACT, ANSWER, "", "Plan:\n" + ACT, "Plan:\n\n \n" + ANSWER, "My Plan: x\n" + ACT)


@pytest.mark.parametrize(("text", "told"), [*((text, NO_PLAN) for text in WITHOUT), (PLAN, NO_ACTION)])
def test_first_turn_without_a_plan_or_with_nothing_else_is_malformed(text, told):
    with pytest.raises(MalformedActionError) as caught:
        PlanActFormat().parse(text, TOOLS)
    assert str(caught.value) == told


def test_plan_and_its_revisions_are_kept():
    revised = "Plan:\n1. Multiply again.\n2. Answer.\n"
    trajectory = play(PLAN + ACT, ACT, revised + ACT.replace("Step: 1\n", ""), ANSWER)
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.ANSWERED, "42")
    assert [turn.notes for turn in trajectory.turns] == [
        {"plan": ["Multiply.", "Answer."], "step": 1},
        {"step": 1},
        {"plan": ["Multiply again.", "Answer."]},
        {},
    ]
    assert Trajectory.from_json(trajectory.to_json()) == trajectory


def test_plan_of_a_turn_with_a_malformed_action_is_kept():
    trajectory = play(PLAN + "Action: calculator", ACT, ANSWER)
    assert [turn.malformed for turn in trajectory.turns] == [NO_ACTION, None, None]
    assert trajectory.turns[1].notes == {"plan": ["Multiply.", "Answer."], "step": 1}


def test_instructions_ask_for_a_plan():
    trajectory = play(ACT, PLAN + ACT, ANSWER)
    assert trajectory.turns[0].observation == f"Observation: Error: {NO_PLAN}"
    assert trajectory.malformed_turns == 1
    assert trajectory.answer == "42"
    assert trajectory.prompt[0].content.startswith(DEFAULT_INSTRUCTIONS[:30])
    assert "calculator: Evaluate" in trajectory.prompt[0].content


def test_episodes_share_no_plan():
    form = PlanActFormat()
    assert play(PLAN + ACT, ANSWER, form=form).answer == "42"
    assert play(ANSWER, form=form, max_malformed=1).stop_reason is StopReason.MALFORMED


def test_a_format_for_a_new_episode_keeps_its_class():
    class Mine(PlanActFormat):
        pass

    form = Mine()
    form.parse(PLAN + ACT, TOOLS)
    fresh = form.fresh()
    assert type(fresh) is Mine
    with pytest.raises(MalformedActionError):
        fresh.parse(ACT, TOOLS)
