"""Describes tools in the first message, for a chat template that shows no tools, and asks for calls in Hermes syntax.

Models such as SmolLM3, trained on several formats, understand such prompts; other models learn the format in training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.trajectory import ToolCall

SYNTAX = "hermes"
"""The syntax in which the model is asked to write calls (a key of `agent_rl.agents.syntaxes.SYNTAXES`)."""

_SECTION = """# Tools

You can call these functions. Their signatures, each as JSON, stand within <tools></tools>:
<tools>
{signatures}
</tools>"""
_FORM = """

For each call, write a JSON object with the function's name and arguments within <tool_call></tool_call>:
<tool_call>
{"name": "name of the function", "arguments": {}}
</tool_call>"""


def with_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], *, system: bool, form: bool
) -> list[dict[str, Any]]:
    """Return the messages with a description of the tools in the first message.

    Args:
        messages: the messages of a conversation.
        tools: schemas in OpenAI's form.
        system: whether the template accepts a system message; if not, the first user message describes the tools.
        form: whether to explain how to write a call.
    """
    section = _SECTION.format(signatures="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)) + (
        _FORM if form else ""
    )
    copies = [dict(message) for message in messages]
    if system and (not copies or copies[0]["role"] != "system"):
        return [{"role": "system", "content": section}, *copies]
    content = copies[0]["content"] if copies else ""
    if isinstance(content, str):
        parts = [content, section] if system else [section, content]
        joined: Any = "\n\n".join(part for part in parts if part)
    else:
        joined = [{"type": "text", "text": f"{section}\n\n"}, *content]
    return [{**(copies[0] if copies else {"role": "user"}), "content": joined}, *copies[1:]]


def call_text(calls: Sequence[ToolCall]) -> str:
    """Return the text of a turn with these calls, in the form that `with_tools` explains."""
    written = [json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in calls]
    return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in written)


def as_user_message(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool's result as a user message, for a template that rejects tool messages."""
    content = result["content"]
    if isinstance(content, str):
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    around = [{"type": "text", "text": text} for text in ("<tool_response>\n", "\n</tool_response>")]
    return {"role": "user", "content": [around[0], *content, around[1]]}
