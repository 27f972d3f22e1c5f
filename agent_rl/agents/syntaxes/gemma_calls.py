"""The syntax of Gemma 4: `<|tool_call>call:f{x:1,name:<|"|>text<|"|>}<tool_call|>`, once per call.

Values are written as in JSON, except that `<|"|>` replaces the quotation marks, and that keys and words may be
unquoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agent_rl.agents.syntaxes.reading import read_json, unreadable, without_ends
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

_OPEN, _CLOSE = "<|tool_call>", "<tool_call|>"
_HEAD = re.compile(r"\s*call:([\w.-]+)(?=\{)")
_QUOTED = r'<\|"\|>((?:(?!<\|"\|>).)*)<\|"\|>'
_KEY, _BARE = r"([^:,{}\[\]\s]+)", r'((?!<\|"\|>)[^,{}\[\]\s][^,{}\[\]]*)'
_PIECE = re.compile(rf"([{{,]\s*)(?:{_QUOTED}|{_KEY})\s*:|{_QUOTED}|{_BARE}", re.DOTALL)
"""Matches a key with the punctuation before it, a quoted string, or a bare value."""


def gemma4(text: str, tools: Sequence[ToolSpec]) -> tuple[str, list[ToolCall]]:
    """Return the text before the first call, and the calls.

    Raises:
        MalformedActionError: a call cannot be read.
    """
    content, *bodies = text.split(_OPEN)
    calls = []
    for body in bodies:
        call = body.partition(_CLOSE)[0]
        head = _HEAD.match(call)
        if head is None:
            unreadable(f"{_OPEN} must be followed by call:name{{...}}")
        try:
            arguments = read_json(_PIECE.sub(_as_json, call[head.end() :]))
        except ValueError:
            unreadable(f"its arguments are not in the form {{key:value}}, or not closed by {_CLOSE}")
        calls.append(ToolCall(head[1], arguments))
    return without_ends(content), calls


def _as_json(piece: re.Match[str]) -> str:
    before, quoted, name, text, bare = piece.groups()
    if before:
        return f"{before}{json.dumps(name if quoted is None else quoted)}:"
    if bare is None:
        return json.dumps(text)
    bare = bare.strip()
    literal = bare.lower() if bare.lower() in ("true", "false", "null") else bare
    try:
        read_json(literal)
    except ValueError:
        return json.dumps(bare)
    return literal
