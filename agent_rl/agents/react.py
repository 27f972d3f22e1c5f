"""The ReAct text format: Thought / Action / Action Input / Observation / Final Answer (Yao et al., 2022).

A turn is free text that ends in one action or in the final answer:

    Thought: I need the product.            Thought: The tool says 42.
    Action: calculator                      Final Answer: 42
    Action Input: {"expression": "6*7"}

The environment answers `Observation: ...` in a separate message. A turn that makes up an observation is cut before the
observation. Tolerant reading takes the first action or answer, and accepts labels in upper or lower case, fenced JSON,
and bare text for a tool's only parameter. Strict reading accepts only the two forms above, with JSON as the input.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.format import Step, TextFormat
from agent_rl.agents.syntaxes.reading import read_json
from agent_rl.errors import MalformedActionError
from agent_rl.settings import ReactSettings
from agent_rl.tools import ToolSpec
from agent_rl.tools.arguments import json_types
from agent_rl.trajectory import ToolCall

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

DEFAULT_EXAMPLES = (
    """\
Question: How high is the tower of the town hall in metres, if it has 12 floors of 3.5 m?
Thought: I multiply the floors by their height.
Action: multiply
Action Input: {"a": 12, "b": 3.5}
Observation: 42
Thought: The tool says 42.
Final Answer: 42""",
    """\
Question: In which year was the architect of the old bridge born?
Thought: First I need the architect's name.
Action: lookup
Action Input: {"title": "old bridge"}
Observation: Error: nothing is called 'old bridge'. Did you mean 'Old Bridge (river)'?
Thought: I use the title that it suggests.
Action: lookup
Action Input: {"title": "Old Bridge (river)"}
Observation: The bridge was built in 1788 by A. Mason (born 1740).
Thought: The architect was A. Mason, born in 1740.
Final Answer: 1740""",
)
"""Complete example episodes for a few-shot prompt; the tools in these examples do not exist."""

_EXAMPLES = "These examples show the form. Their tools are not yours.\n\n"

NO_ACTION = (
    'I could not read an action. Write "Action: <tool>" and "Action Input: <JSON arguments>", '
    'or "Final Answer: <answer>".'
)

_LABEL = re.compile(
    r"^[ \t]*(Thought|Action|Action[ \t]+Input|Observation|Final[ \t]+Answer)[ \t]*:", re.IGNORECASE | re.MULTILINE
)
_STRICT = [["Action:", "Action Input:"], ["Final Answer:"]]
_FENCED = re.compile(r"```(?:\w*[ \t]*\n|json)?(.*)```", re.DOTALL)


def invalid_json(tool: str) -> str:
    """Return the correction that the policy sees when an action's input cannot be read."""
    return f"Action Input is not valid JSON arguments for '{tool}'."


class ReactFormat(TextFormat):
    """The ReAct text format, with tolerant or strict reading.

    Args:
        instructions: system text with the placeholders `{tools}` and `{tool_names}`; None means the default text.
        observation_role: role of the message that shows an observation.
        examples: complete episodes that follow the instructions; if empty, the prompt is zero-shot.
        strict: whether to accept only the two forms that the instructions show.
    """

    stop = ("\nObservation:",)
    around = ("Observation: ", "")
    default_instructions = DEFAULT_INSTRUCTIONS

    def __init__(
        self,
        instructions: str | None = None,
        observation_role: Literal["user", "tool"] = "user",
        *,
        examples: Sequence[str] = (),
        strict: bool = False,
    ) -> None:
        super().__init__(instructions, observation_role)
        self._examples = _EXAMPLES + "\n\n".join(examples) if examples else ""
        self._strict = strict

    @classmethod
    def configured(cls, react: ReactSettings) -> ReactFormat:
        """Create the format that the `agent_rl.react` section configures."""
        examples: list[str] = []
        for example in react.examples:
            examples += DEFAULT_EXAMPLES if example == "default" else (example,)
        return cls(react.instructions, react.observation_role, examples=examples, strict=react.parsing == "strict")

    def instructions(self, tools: Sequence[ToolSpec]) -> str:
        """Return the system text with the tools filled in, and the examples."""
        names = ", ".join(tool.name for tool in tools)
        text = self._instructions.replace("{tools}", describe(tools)).replace("{tool_names}", names)
        return "\n\n".join(part for part in (text, self._examples) if part)

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read a turn's first action or final answer; tolerant reading ignores all labeled lines after it."""
        if self._strict:
            _require_form(text)
        sections = _sections(text)
        for label, body in sections:
            if label == "final answer":
                return Step(answer=body)
            if label == "action":
                following, raw = next(sections, ("", ""))
                if not body or "\n" in body or following != "action input":
                    break
                arguments = _arguments(body, raw, tools, strict=self._strict)
                return Step(calls=[ToolCall(name=body, arguments=arguments)])
            if label == "observation":
                break
        raise MalformedActionError(NO_ACTION)


AGENT = Agent("react_agent", lambda settings, limits: ReactFormat.configured(settings.react))


def describe(tools: Sequence[ToolSpec]) -> str:
    """Return one line per tool: name, description and parameters as JSON."""
    return "\n".join(f"{tool.name}: {tool.description} Parameters: {json.dumps(tool.parameters)}" for tool in tools)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield each label at the start of a line, in lower case, with the text up to the next label."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    labels = list(_LABEL.finditer(text))
    starts = [*(label.start() for label in labels), len(text)]
    for number, label in enumerate(labels, start=1):
        yield " ".join(label[1].lower().split()), text[label.end() : starts[number]].strip()


def _require_form(text: str) -> None:
    """Reject a turn that does not start with a label, or whose labels match neither of the two forms."""
    labels = [label[0] for label in _LABEL.finditer(text)]
    first = labels[0] if labels else ""
    if labels[first == "Thought:" :] not in _STRICT or not text.startswith(first):
        raise MalformedActionError(NO_ACTION)


def _arguments(name: str, raw: str, tools: Sequence[ToolSpec], *, strict: bool) -> dict[str, Any]:
    """Parse an action's input: a JSON object or, unless `strict`, the bare text of a tool's only parameter."""
    if not strict and (fenced := _FENCED.fullmatch(raw)):
        raw = fenced[1].strip()
    try:
        value = read_json(raw)
    except ValueError:
        value = raw
    if isinstance(value, dict):
        return value
    if strict:
        raise MalformedActionError(invalid_json(name))
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:  # for an unknown tool, the list of tools helps the policy more than an error about the arguments
        return {}
    properties = tool.parameters.get("properties", {})
    if len(properties) != 1 or not raw:
        raise MalformedActionError(invalid_json(name))
    ((parameter, schema),) = properties.items()
    kinds = json_types(schema)
    if raw.startswith(("{", "[")) and not (isinstance(value, list) and "array" in kinds):
        raise MalformedActionError(invalid_json(name))
    return {parameter: raw if "string" in kinds and not isinstance(value, str) else value}
