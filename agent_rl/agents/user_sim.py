"""The text format of an agent that talks to a user and has tools: ReAct with a message instead of an answer.

    Thought: I must know the order.          Thought: I look it up.
    Message: Which order do you mean?        Action: orders
                                             Action Input: {"number": 17}

The simulated user (`agents/users`) answers a message; the answer to an action is `Observation: ...`. A turn without any
label is a message. The conversation ends when the user ends it; the last message is the trajectory's answer. With
`agent_rl.user_sim.native` the agent uses the format of `tool_call` instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.format import Format, Step
from agent_rl.agents.episode.policy import ChatMessage
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.agents.users.user import ROW_KEY, User, load_user
from agent_rl.errors import ConfigError, MalformedActionError
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolResult

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
    """The ReAct format with messages to a user instead of a final answer."""

    default_instructions = DEFAULT_INSTRUCTIONS

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read the first action or message; a message becomes the step's `answer`."""
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
        """Return results in the configured role, and the user's messages and corrections in the `user` role."""
        return super().reply(observation, results) if results else [{"role": "user", "content": observation}]


def _format(settings: AgentRLSettings, limits: EpisodeLimits) -> Format:
    user_sim = settings.user_sim
    if user_sim.native:
        return ToolCallFormat(limits.format)
    return UserSimFormat(user_sim.instructions, user_sim.observation_role)


def _user(settings: AgentRLSettings, extra_info: Mapping[str, Any]) -> User:
    about = extra_info.get("user")
    if about is None:
        raise ConfigError(ROW_KEY, "the row has no user", "Describe the user in this column, for example {'goal': ...}")
    user_sim = settings.user_sim
    return load_user(user_sim.user, user_sim.config)(MappingProxyType(user_sim.config), about)


AGENT = Agent("user_sim_agent", _format, user=_user)
