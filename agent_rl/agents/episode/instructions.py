"""Instructions of a format, put where chat templates want them."""

from __future__ import annotations

from collections.abc import Sequence

from agent_rl.agents.episode.policy import ChatMessage

__all__ = ["with_instructions"]


def with_instructions(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    """The messages with the text in the system message, after what a system message of theirs says."""
    if not text:
        return list(messages)
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{messages[0]['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
