"""The format of turns with the tags <think>, <search>, <information> and <answer> (Search-R1; Jin et al., 2025).

A turn ends with a query or with the answer:

    <think>I need the year.</think>             <think>It says 1808.</think>
    <search>Faust first part published</search>  <answer>1808</answer>

The environment answers `<information>...</information>` in a separate message. The closing tag ends a turn and is part
of its text, so the tag is sampled and trained on. Any text may come before the opening tag. A query can be sent to any
tool that takes a single string.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.format import Step, TextToolFormat
from agent_rl.agents.episode.policy import Generation
from agent_rl.errors import MalformedActionError
from agent_rl.tools import ToolSpec

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


class SearchFormat(TextToolFormat):
    """The format of `search_agent`'s turns; `TextToolFormat` describes the arguments."""

    stop = ("</search>", "</answer>")
    keep_stop = True
    around = ("<information>", "</information>")
    default_instructions = DEFAULT_INSTRUCTIONS
    usual_tool, tool_key = "search", "agent_rl.search.tool"

    def read(self, generated: Generation, tools: Sequence[ToolSpec]) -> Step:
        """Read a turn with its thoughts, because the tag that ended the turn may be inside an unclosed thought."""
        return self.parse(generated.text, tools)

    def parse(self, text: str, tools: Sequence[ToolSpec]) -> Step:
        """Read the query or the answer."""
        match = _TAGGED.search(text)
        body = match[2].strip() if match else ""
        if not match or not body:
            raise MalformedActionError(NO_ACTION)
        return Step(answer=body) if match[1] == "answer" else Step(calls=[self.call(body, tools)])


AGENT = Agent("search_agent", lambda settings, limits: SearchFormat(**dict(settings.search)))
