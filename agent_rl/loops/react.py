"""The ReAct text format: Thought / Action / Action Input / Observation / Final Answer (Yao et al., 2022).

A turn is free text that ends in one action or in the final answer:

    Thought: I need the product.            Thought: The tool says 42.
    Action: calculator                      Final Answer: 42
    Action Input: {"expression": "6*7"}

The environment answers `Observation: ...` in a message of its own. An action's input is a JSON object; for a tool with a
single parameter the bare text is taken as well. A turn that writes its own observation is cut before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from agent_rl.errors import MalformedActionError
from agent_rl.loops.episode import Format, Step
from agent_rl.loops.policy import ChatMessage
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall, ToolResult

__all__ = ["DEFAULT_INSTRUCTIONS", "NO_ACTION", "ReactFormat", "invalid_json"]

DEFAULT_INSTRUCTIONS = """\
Answer the question. You can use these tools:

{tools}

Write exactly one of these two forms, then stop:

Thought: what to do next
Action: the tool, one of {tool_names}
Action Input: its arguments as a JSON object

Thought: why the answer is known
Final Answer: the answer

After an action you receive a message that begins with "Observation:"."""

NO_ACTION = (
    'I could not read an action. Write "Action: <tool>" and "Action Input: <JSON arguments>", or "Final Answer: <answer>".'
)

_ANSWER = re.compile(r"^[ \t]*Final Answer[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
_ACTION = re.compile(r"^[ \t]*Action[ \t]*:[ \t]*([^\n]*?)[ \t]*$", re.IGNORECASE | re.MULTILINE)
_INPUT = re.compile(r"^[ \t]*Action Input[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^```(?:json)?\s*\n?(.*?)\n?```$", re.DOTALL)


def invalid_json(tool: str) -> str:
    """What the policy is told when an action's input cannot be read."""
    return f"Action Input is not valid JSON arguments for '{tool}'."


class ReactFormat(Format):
    """The format with its two choices: the instructions, and the role that shows an observation."""

    stop = ("\nObservation:",)

    def __init__(self, instructions: str | None = None, observation_role: Literal["user", "tool"] = "user") -> None:
        self._instructions = DEFAULT_INSTRUCTIONS if instructions is None else instructions
        self._role = observation_role

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """The row's messages with the instructions in the system message."""
        text = self._instructions.replace("{tools}", describe(tools)).replace(
            "{tool_names}", ", ".join(tool.name for tool in tools)
        )
        if not text:
            return list(messages)
        if messages and messages[0]["role"] == "system":
            return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
        return [{"role": "system", "content": text}, *messages]

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read the first action or final answer of a turn."""
        action, answer = _ACTION.search(text), _ANSWER.search(text)
        if answer and not (action and action.start() < answer.start()):
            return Step(answer=text[answer.end() :].strip())
        if not action or not action[1]:
            raise MalformedActionError(NO_ACTION)
        found = _INPUT.match(text, min(action.end() + 1, len(text)))
        if not found:
            raise MalformedActionError(NO_ACTION)
        raw = text[found.end() : answer.start() if answer else len(text)]
        following = _ACTION.search(raw)
        raw = (raw[: following.start()] if following else raw).strip()
        return Step(calls=[ToolCall(name=action[1], arguments=_arguments(action[1], raw, tools))])

    def observation(self, results: Sequence[ToolResult]) -> str:
        """One line for each result; the text of what went wrong begins with "Error:"."""
        return "\n".join(f"Observation: {result.text}" for result in results)

    def correction(self, error: MalformedActionError) -> str:
        """The mistake as an observation."""
        return f"Observation: Error: {error}"

    def reply(self, observation: str, results: Sequence[ToolResult]) -> list[ChatMessage]:
        """One message, whatever the number of results."""
        return [{"role": self._role, "content": observation}]


def describe(tools: Sequence[ToolSpec]) -> str:
    """One line for each tool: name, description and parameters as JSON."""
    return "\n".join(f"{tool.name}: {tool.description} Parameters: {json.dumps(tool.parameters)}" for tool in tools)


def _arguments(name: str, raw: str, tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """An action's input as arguments: a JSON object, or the bare text of a tool's only parameter."""
    fenced = _FENCE.match(raw)
    raw = fenced[1].strip() if fenced else raw
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = raw
    if isinstance(value, dict):
        return value
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:  # the call is answered with the list of tools, which helps more than a word on its arguments
        return {}
    properties = tool.parameters.get("properties", {})
    if len(properties) != 1 or not raw or raw.startswith(("{", "[")):
        raise MalformedActionError(invalid_json(name))
    (parameter, schema), *_ = properties.items()
    return {parameter: raw if schema.get("type") == "string" and not isinstance(value, str) else value}
