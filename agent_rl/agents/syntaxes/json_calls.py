"""Syntaxes with calls in JSON: hermes, llama3_json, mistral, kimi, gpt-oss and deepseek_v3.

Each function takes a turn's text, including special tokens, and the tools. The function returns the text around the
calls and a list of the calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agent_rl.agents.syntaxes.reading import call_from, read_call_json, read_json, unreadable, without_ends
from agent_rl.agents.syntaxes.tagged_calls import Parsed, blocks
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

_PYTHON_TAG = "<|python_tag|>"
_TOOL_CALLS, _ARGS, _CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_KIMI_SECTION = "<|tool_calls_section_begin|>"
_KIMI_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")
_DEEPSEEK = [
    f"<\uff5ctool\u2581{name}\uff5c>" for name in ("calls\u2581begin", "call\u2581begin", "sep", "call\u2581end")
]
CHANNEL = "<|channel|>"
"""The token before a channel's name in a gpt-oss turn."""

_HARMONY_END = re.compile(r"<\|(?:end|call|return)\|>")
_RECIPIENT = re.compile(r"to=functions\.([^\s<]+)")


def hermes(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>`, once per call (Qwen2.5, Qwen3, Hermes)."""
    content, *opened = text.split("<tool_call>")
    calls = []
    for part in opened:
        body, closed, rest = part.partition("</tool_call>")
        if not closed:
            unreadable("<tool_call> is not closed by </tool_call>")
        calls.append(call_from(read_call_json(body), "arguments", "parameters"))
        content += rest
    return without_ends(content), calls


def llama3_json(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `{"name": "f", "parameters": {"x": 1}}`, separated by `;`, with or without `<|python_tag|>` (Llama 3)."""
    content, tagged, body = text.partition(_PYTHON_TAG)
    if not tagged:
        content, body = "", text
    body = without_ends(body)
    if not tagged and not body.startswith("{"):
        return without_ends(text), []
    try:
        values = _json_sequence(body.replace(_PYTHON_TAG, ";"))
    except ValueError as error:
        if not tagged and not ('"name"' in body and ('"parameters"' in body or '"arguments"' in body)):
            return body, []  # this is an answer that happens to begin with a brace, not a call
        unreadable(f"it is not valid JSON ({error})")
    if not tagged and not all(isinstance(value, dict) and "name" in value and len(value) > 1 for value in values):
        return body, []
    return without_ends(content), [call_from(value, "parameters", "arguments") for value in values]


def mistral(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse Mistral's calls: `[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]` or `[TOOL_CALLS]f[ARGS]{"x": 1}`."""
    content, *bodies = text.split(_TOOL_CALLS)
    calls: list[ToolCall] = []
    for raw in bodies:
        body = without_ends(raw)
        if _ARGS in body:
            head, _, arguments = body.partition(_ARGS)
            name, _, identifier = head.partition(_CALL_ID)
            value = {"name": name.strip(), "arguments": read_call_json(arguments), "id": identifier.strip()}
            calls.append(call_from(value, "arguments"))
            continue
        listed = read_call_json(body)
        if not isinstance(listed, list):
            listed = [listed]
        calls += [call_from(value, "arguments", "parameters") for value in listed]
    if bodies and not calls:
        unreadable(f"no call follows {_TOOL_CALLS}")
    return without_ends(content), calls


def kimi(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"x": 1}<|tool_call_end|>` (Kimi K2).

    In an identifier such as `functions.f:0`, `f` is the call's name; the whole identifier is the call's id.
    """
    content, parts = _in_section(text, _KIMI_SECTION, "<|tool_call_begin|>", "<|tool_call_end|>")
    calls = []
    for part in parts:
        identifier, _, raw = part.partition("<|tool_call_argument_begin|>")
        name = _KIMI_ID.fullmatch(identifier.strip())
        value = {"name": name and name[1], "arguments": read_call_json(raw), "id": identifier.strip()}
        calls.append(call_from(value, "arguments"))
    return content, calls


def deepseek_v3(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `f<sep>{"x": 1}` (DeepSeek V3.1), or `function<sep>f` and fenced JSON (V3, R1), between special tokens."""
    section, opening, separator, closing = _DEEPSEEK
    content, parts = _in_section(text, section, opening, closing)
    calls = []
    for part in parts:
        name, _, raw = part.partition(separator)
        if "```" in raw:
            name, _, raw = raw.partition("```")
            raw = raw.strip().removeprefix("json").removesuffix("```")
        calls.append(call_from({"name": name.strip(), "arguments": read_call_json(raw)}, "arguments"))
    return content, calls


def _in_section(text: str, section: str, opening: str, closing: str) -> tuple[str, list[str]]:
    """Return the text before the section with calls, and each call's text between its opening and closing tokens."""
    content, opened, body = text.partition(section)
    _, parts = blocks(body, opening, closing)
    if opened and not parts:
        unreadable(f"no call follows {section}")
    return without_ends(content), parts


def gpt_oss(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse Harmony messages (gpt-oss): a message to `functions.f` is a call; the `final` channel is the answer."""
    if "<|message|>" not in text:
        if "<|channel|>" in text:
            unreadable("a message has no <|message|>")
        return without_ends(text), []
    calls, final, content, at = [], None, [], 0
    while (begin := text.find("<|message|>", at)) >= 0:
        header, start = text[at:begin], begin + len("<|message|>")
        end = _HARMONY_END.search(text, start)
        body, at = (text[start : end.start()], end.end()) if end else (text[start:], len(text))
        channel = header.rpartition("<|channel|>")[2].partition("<|")[0].split()[:1]
        if recipient := _RECIPIENT.search(header):
            calls.append(call_from({"name": recipient[1], "arguments": read_call_json(body)}, "arguments"))
        elif channel == ["final"]:
            final = body
        elif channel != ["analysis"]:
            content.append(body)
    return without_ends(" ".join(content) if final is None else final), calls


def without_channels(text: str) -> str:
    """Replace the channels of a gpt-oss turn: `analysis` becomes a thought, and the text of `final` follows it."""
    if CHANNEL not in text:
        return text
    parts: dict[str, list[str]] = {"analysis": [], "final": []}
    for message in text.split(CHANNEL)[1:]:
        header, _, body = message.partition("<|message|>")
        body = _HARMONY_END.split(body)[0]
        parts["analysis" if header.split()[:1] == ["analysis"] else "final"].append(body)
    thought = f"<think>{' '.join(parts['analysis'])}</think>\n" if parts["analysis"] else ""
    return thought + " ".join(parts["final"])


def _json_sequence(raw: str) -> list[Any]:
    """Parse JSON values that are separated by semicolons, commas or nothing."""
    decoder, values, position = json.JSONDecoder(strict=False), [], 0
    while position < len(raw):
        if raw[position] in "; ,\n\t\r":
            position += 1
            continue
        try:
            _, end = decoder.raw_decode(raw, position)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        values.append(read_json(raw[position:end]))
        position = end
    if not values:
        raise ValueError("there is nothing")
    return values
