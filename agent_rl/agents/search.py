"""Search in tags: <think>, <search>, <information>, <answer> (Search-R1; Jin et al., 2025).

A turn ends with a query or with the answer:

    <think>I need the year.</think>             <think>It says 1808.</think>
    <search>Faust first part published</search>  <answer>1808</answer>

The environment answers `<information>...</information>` in a message of its own. The closing tag ends a turn and
belongs to it: it is sampled, trained on, and part of the turn's text. What stands before its opening tag is free. The
tool that a query goes to is any that takes one text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from agent_rl.agents.episode.format import Format, Step, with_images
from agent_rl.agents.episode.instructions import with_instructions
from agent_rl.agents.episode.policy import ChatMessage, Generation
from agent_rl.agents.episode.text_tool import TextTool
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolResult

__all__ = ["DEFAULT_INSTRUCTIONS", "NO_ACTION", "SearchFormat"]

DEFAULT_INSTRUCTIONS = """\
Answer the question. Reason between <think> and </think> first, and again whenever you have learned something.
When you miss a fact, write a query between <search> and </search>, then stop: you receive what was found between
<information> and </information>. You may search several times.
When you know the answer, write it between <answer> and </answer>, as short as possible: <answer>Weimar</answer>"""

NO_ACTION = (
    "I could not read an action. Write a query between <search> and </search>, "
    "or the answer between <answer> and </answer>."
)

_TAGGED = re.compile(r"<(search|answer)>((?:(?!</?(?:search|answer)>).)*)</\1>", re.DOTALL)


class SearchFormat(Format):
    """The format with its choices.

    Args:
        instructions: system text; None: the default; empty: none.
        observation_role: of the message that shows what was found.
        tool: the tool that a query goes to; None: the only one, or `search`.
    """

    stop = ("</search>", "</answer>")
    keep_stop = True

    def __init__(
        self,
        instructions: str | None = None,
        observation_role: Literal["user", "tool"] = "user",
        tool: str | None = None,
    ) -> None:
        self._instructions = DEFAULT_INSTRUCTIONS if instructions is None else instructions
        self._role = observation_role
        self._tool = tool

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """The row's messages with the instructions in the system message.

        Raises:
            ConfigError: when no tool takes a query.
        """
        self._find(tools)
        return with_instructions(messages, self._instructions)

    def read(self, generated: Generation, tools: Sequence[ToolSpec]) -> Step:
        """Read a turn with its thoughts: the tag that ended it may stand in one that was not closed."""
        return self.parse(generated.text, tools)

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read the query or the answer."""
        found = _TAGGED.search(text)
        body = found[2].strip() if found else ""
        if not found or not body:
            raise MalformedActionError(NO_ACTION)
        return Step(answer=body) if found[1] == "answer" else Step(calls=[self._find(tools).call(body)])

    def observation(self, results: Sequence[ToolResult]) -> str:
        """What was found, or an error, in tags."""
        return "\n".join(f"<information>{result.text}</information>" for result in results)

    def correction(self, error: MalformedActionError) -> str:
        """The mistake, where information would be."""
        return f"<information>Error: {error}</information>"

    def reply(self, observation: str, results: Sequence[ToolResult]) -> list[ChatMessage]:
        """One message."""
        return [{"role": self._role, "content": with_images(observation, results)}]

    def _find(self, tools: Sequence[ToolSpec]) -> TextTool:
        return TextTool.find(tools, self._tool, "search", "agent_rl.search.tool")
