"""Writes turns in a model's format, for made-up conversations in checks and tables."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from agent_rl.agents.policies.call_messages import MARK, call_turns
from agent_rl.agents.policies.chat_template import USER, ChatTemplate, same_beginning
from agent_rl.agents.policies.rendering_difference import THOUGHTS
from agent_rl.agents.policies.shown_tools import call_text
from agent_rl.trajectory import ToolCall


class TurnWriter:
    """Writes turns as a chat template does, without the tokens that end a turn.

    Args:
        template: the model's chat template.
        tools: the tools that are passed to the template.
    """

    def __init__(self, template: ChatTemplate, tools: Any = None) -> None:
        self.template, self.tools = template, tools

    def calls(self, calls: Sequence[ToolCall]) -> str:
        """Return a turn with these calls.

        Raises:
            ValueError: the template does not write calls.
        """
        template = self.template
        if template.asks_for_calls:
            return call_text(calls)
        stops = template.end_ids | template.start_ids
        opening = template.encode(template.text([USER], self.tools, prompt=True))
        for turn in call_turns(calls):
            with contextlib.suppress(Exception):  # a chat template may raise any exception
                ids = template.encode(template.text([USER, turn], self.tools, prompt=False))
                same = same_beginning(ids, opening)
                last = next((at for at in range(len(ids) - 1, same, -1) if ids[at] in stops), len(ids))
                text = template.decode(ids[same:last])
                if calls[-1].name in text:
                    return text.rstrip("\n")
        raise ValueError("the chat template writes no calls")

    def answer(self, text: str) -> str:
        """Return a turn with this text."""
        template = self.template
        opening = template.encode(template.text([USER], prompt=True))
        full = template.text([USER, {"role": "assistant", "content": MARK}], prompt=False)
        before = template.encode(full.rpartition(MARK)[0])
        same = same_beginning(before, opening)
        return template.decode(before[same:]) + text if same == len(opening) else text

    def after_thought(self, text: str) -> str:
        """Return the turn, preceded by a thought if the template opens a thought at the start of a turn."""
        opening = self.template.text([USER], self.tools, prompt=True)
        for begin, end in THOUGHTS:
            if begin in opening and end not in opening.rpartition(begin)[2]:
                return f"I compute.\n{end}\n\n{text.rpartition(end)[2].lstrip()}"
        return text
