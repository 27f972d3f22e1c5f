"""The text format of an agent that talks with a user and has tools: ReAct's, with a message in place of an answer.

    Thought: I must know the order.          Thought: I look it up.
    Message: Which order do you mean?        Action: orders
                                             Action Input: {"number": 17}

A message is answered by the simulated user (`agents/users`), an action by `Observation: ...`. A turn without any
label is a message as a whole. The conversation ends when the user ends it; the last message is the trajectory's answer.
With `agent_rl.user_sim.native` the agent has `tool_call`'s format instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from agent_rl.agents.episode.format import Step
from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.react import ReactFormat
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolResult

__all__ = ["DEFAULT_INSTRUCTIONS", "NO_MESSAGE", "UserSimFormat"]

DEFAULT_INSTRUCTIONS = """\
You talk with a user and help. You can use these tools:

{tools}

Write exactly one of these two forms, then stop:

Thought: what to do next
Action: the tool, one of {tool_names}
Action Input: its arguments as a JSON object

Thought: what the user must be told or asked
Message: what you say to the user

After an action you receive a message that begins with "Observation:", after a message the user's answer. The user sees
nothing but your messages, and ends the conversation when there is nothing left to do."""

NO_MESSAGE = (
    'I could not read an action or a message. Write "Action: <tool>" and "Action Input: <JSON arguments>", '
    'or "Message: <what you say to the user>".'
)

_LABEL = re.compile(r"^[ \t]*(Thought|Action|Message|Observation)[ \t]*:", re.IGNORECASE | re.MULTILINE)


class UserSimFormat(ReactFormat):
    """The format with its two choices: the instructions, and the role that shows an observation."""

    def __init__(self, instructions: str | None = None, observation_role: Literal["user", "tool"] = "user") -> None:
        super().__init__(DEFAULT_INSTRUCTIONS if instructions is None else instructions, observation_role)

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read the action or the message that comes first; a message is the step's answer."""
        labels = [label for label in _LABEL.finditer(text) if label[1].lower() != "thought"]
        if labels and labels[0][1].lower() == "action":
            later = [label.start() for label in labels if label[1].lower() == "message"]
            return super().parse(text[: min(later, default=len(text))], tools)
        if labels and labels[0][1].lower() == "message":
            message = text[labels[0].end() :].strip()
        else:
            message = "" if _LABEL.search(text) else text.strip()
        if not message:
            raise MalformedActionError(NO_MESSAGE)
        return Step(answer=message)

    def reply(self, observation: str, results: Sequence[ToolResult]) -> list[ChatMessage]:
        """Results in the configured role; what the user says, and a correction, in the user's."""
        return super().reply(observation, results) if results else [{"role": "user", "content": observation}]
