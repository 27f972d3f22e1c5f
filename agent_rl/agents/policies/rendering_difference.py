"""Classifies how a conversation, when rendered again as a whole, differs from the text written turn by turn."""

from __future__ import annotations

import re

from agent_rl.agents.episode.format import CLOSE, OPEN, OTHER_THOUGHTS
from agent_rl.agents.policies.chat_template import ChatTemplate
from agent_rl.agents.syntaxes.json_calls import CHANNEL

IN_WHITE_SPACE = "in whitespace only"
IN_THOUGHTS = "only in its thoughts and their markers"
IN_ORDER = "only in the position of the system message or the tools"

THOUGHTS = (
    (OPEN, CLOSE),
    *OTHER_THOUGHTS,
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
)
"""Markers around a thought, by model family."""


def difference(template: ChatTemplate, written: str, later: str) -> str:
    """Return the kind of difference: `IN_WHITE_SPACE`, `IN_THOUGHTS`, `IN_ORDER`, or "" for any other difference.

    Args:
        template: the template used for both renderings.
        written: the text of the conversation's start, as it was written turn by turn.
        later: the whole conversation, or its start, rendered again.
    """
    if "".join(later.split()).startswith("".join(written.split())):
        return IN_WHITE_SPACE
    words, others = _words(template, written), _words(template, later)
    if "".join(others).startswith("".join(words)):
        return IN_THOUGHTS
    return IN_ORDER if set(words) <= set(others) else ""


def _words(template: ChatTemplate, text: str) -> list[str]:
    """Return the text without thoughts, their markers and special tokens."""
    for begin, end in THOUGHTS:
        text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", " ", text, flags=re.DOTALL)
        text = re.sub(rf"[^\n>]*\n?{re.escape(end)}", " ", text).replace(begin, " ")  # thoughts may begin in the prompt
    for header in (f"{CHANNEL}final", "<|channel>thought"):
        text = text.replace(header, " ")
    for token in template.added_tokens:
        text = text.replace(token, " ")
    return text.split()
