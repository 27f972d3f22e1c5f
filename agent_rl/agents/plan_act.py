"""Plan and act: the ReAct format with a plan before the first action; any later turn may replace the plan.

    Plan:                                     Plan:
    1. Find the price.                        1. Ask for the size first.
    2. Multiply it by the number.             2. Find the price.
    Step: 1                                   Step: 1
    Thought: I look it up.                    Thought: There are several sizes.
    Action: shop                              Action: shop
    Action Input: {"item": "pear"}            Action Input: {"item": "pear", "list": "sizes"}

`Turn.notes["plan"]` is the turn's plan as a list of strings, and `Turn.notes["step"]` is the number of the current
step, so a trajectory's JSON contains every revision of the plan. A first action or answer without a plan is malformed.
A reward may judge whether a turn follows its plan.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, Literal

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.format import Step
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec

DEFAULT_INSTRUCTIONS = """\
Answer the question by a plan. You can use these tools:

{tools}

Begin your first turn with a plan. Then, in every turn, write exactly one of these two forms and stop:

Step: the number of the step that you work on
Thought: what to do next
Action: the tool, one of {tool_names}
Action Input: its arguments as a JSON object

Thought: why the answer is known
Final Answer: the answer

A plan has one line for each step:

Plan:
1. first step
2. second step

After an action you receive a message that begins with "Observation:". When it shows that the plan does not work, begin
your turn with a new plan."""

NO_PLAN = 'I could not read a plan. Begin with "Plan:" and one numbered line for each step, then write your action.'

_PLAN = re.compile(
    r"^[ \t]*Plan[ \t]*:(.*?)(?=^[ \t]*(?:Step|Thought|Action|Final[ \t]+Answer)[ \t]*:|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_STEP = re.compile(r"^[ \t]*Step[ \t]*:[ \t]*(\d{1,4})\b", re.IGNORECASE | re.MULTILINE)
_ITEM = re.compile(r"^[ \t]*(?:\d{1,4}[.)]|[-*])[ \t]+", re.MULTILINE)


class PlanActFormat(ReactFormat):
    """The ReAct format with a plan; an instance remembers whether its episode already has a plan."""

    default_instructions = DEFAULT_INSTRUCTIONS

    def __init__(self, instructions: str | None = None, observation_role: Literal["user", "tool"] = "user") -> None:
        super().__init__(instructions, observation_role)
        self._planned = False
        self._notes: dict[str, Any] = {}

    def fresh(self) -> PlanActFormat:
        """Return a format for a new episode, without a plan."""
        format = copy.copy(self)
        format._planned, format._notes = False, {}
        return format

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read the plan, if any, and then the rest of the turn as `react_agent` does.

        If a turn's action is malformed, its plan still counts, and the next well-formed turn gets the plan as a note.
        """
        if plan := _PLAN.search(text):
            steps = _steps(plan[1])
            if not steps:
                raise MalformedActionError(NO_PLAN)
            self._notes["plan"] = steps
            self._planned = True
        if not self._planned:
            raise MalformedActionError(NO_PLAN)
        step = super().parse(text, tools)
        if number := _STEP.search(text):
            self._notes["step"] = int(number[1])
        step.notes, self._notes = self._notes, {}
        return step


AGENT = Agent("plan_act_agent", lambda settings, limits: PlanActFormat(**dict(settings.plan_act)))


def _steps(text: str) -> list[str]:
    """Return the steps: numbered lines or bullets with the lines below them, or every line if there are no items."""
    parts = _ITEM.split(text)[1:] if _ITEM.search(text) else text.splitlines()
    return [" ".join(part.split()) for part in parts if part.strip()]
