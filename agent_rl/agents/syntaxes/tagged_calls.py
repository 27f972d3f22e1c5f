"""Syntaxes whose arguments stand in tags of their own: qwen3_coder, seed, glm, minimax and deepseek_v4.

Each function takes a turn's text with its special tokens and the tools, and gives the text beside the calls, and the
calls. An argument's text is read by the tool's schema: "5" is a number only where a number is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agent_rl.agents.syntaxes.reading import parameter_types, read_json, typed, unreadable, without_ends
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

__all__ = ["deepseek_v4", "glm", "minimax", "qwen3_coder", "seed"]

Parsed = tuple[str, list[ToolCall]]

_FUNCTION = re.compile(r"<function=([^<>\n]+)>(.*?)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>(.*?)</parameter>", re.DOTALL)
_GLM_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_GLM_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_INVOKE = re.compile(r"""<invoke name=["']([^"'>]+)["']>(.*?)</invoke>""", re.DOTALL)
_INVOKED = re.compile(r"""<parameter name=["']([^"'>]+)["']>(.*?)</parameter>""", re.DOTALL)
_DSML = "\uff5cDSML\uff5c"
_DSML_INVOKE = re.compile(rf'<{_DSML}invoke name="([^">]+)">(.*?)</{_DSML}invoke>', re.DOTALL)
_DSML_PARAMETER = re.compile(
    rf'<{_DSML}parameter name="([^">]+)" string="(true|false)">(.*?)</{_DSML}parameter>', re.DOTALL
)


def qwen3_coder(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """`<tool_call><function=f><parameter=x>1</parameter></function></tool_call>` (Qwen3-Coder, Qwen3.5)."""
    return _functions(text, tools, "tool_call")


def seed(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """`<seed:tool_call><function=f><parameter=x>1</parameter></function></seed:tool_call>` (Seed-OSS)."""
    return _functions(text, tools, "seed:tool_call")


def glm(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """`<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>` (GLM-4.5 and later)."""
    content, bodies = _blocks(text, "<tool_call>", "</tool_call>")
    calls = []
    for body in bodies:
        name = body.partition("<arg_key>")[0].strip()
        pairs = _GLM_PAIR.findall(body) if len({body.count(tag) for tag in _GLM_TAGS}) == 1 else []
        if len(pairs) != body.count(_GLM_TAGS[0]):
            unreadable("an <arg_key> or <arg_value> is missing, or not closed")
        calls.append(_call(name, pairs, tools))
    return content, calls


def minimax(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """`<minimax:tool_call><invoke name="f"><parameter name="x">1</parameter></invoke></minimax:tool_call>`."""
    content, bodies = _blocks(text, "<minimax:tool_call>", "</minimax:tool_call>")
    calls = []
    for body in bodies:
        _nothing_but(_INVOKE, body, "<invoke", "</invoke>", required=True)
        for name, inner in _INVOKE.findall(body):
            _nothing_but(_INVOKED, inner, "<parameter", "</parameter>")
            calls.append(_call(name.strip(), _INVOKED.findall(inner), tools))
    return content, calls


def deepseek_v4(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """DSML: as minimax, and a parameter says by `string="true"` or `"false"` whether it is text or JSON (DeepSeek)."""
    content, bodies = _blocks(text, f"<{_DSML}tool_calls>", f"</{_DSML}tool_calls>")
    calls = []
    for body in bodies:
        _nothing_but(_DSML_INVOKE, body, f"<{_DSML}invoke", f"</{_DSML}invoke>", required=True)
        for name, inner in _DSML_INVOKE.findall(body):
            _nothing_but(_DSML_PARAMETER, inner, f"<{_DSML}parameter", f"</{_DSML}parameter>")
            arguments = {
                key: raw if text == "true" else _json(key, raw) for key, text, raw in _DSML_PARAMETER.findall(inner)
            }
            calls.append(ToolCall(name.strip(), arguments))
    return content, calls


def _functions(text: str, tools: Sequence[ToolSpec], tag: str) -> Parsed:
    content, bodies = _blocks(text, f"<{tag}>", f"</{tag}>")
    calls = []
    for body in bodies:
        _nothing_but(_FUNCTION, body, "<function", "</function>", required=True)
        for name, inner in _FUNCTION.findall(body):
            _nothing_but(_PARAMETER, inner, "<parameter", "</parameter>")
            calls.append(_call(name.strip(), _PARAMETER.findall(inner), tools))
    return content, calls


def _blocks(text: str, opening: str, closing: str) -> tuple[str, list[str]]:
    """What stands before the first block, and the blocks.

    Raises:
        MalformedActionError: for one that is not closed.
    """
    content, *rest = text.split(opening)
    bodies = []
    for part in rest:
        body, closed, _ = part.partition(closing)
        if not closed:
            unreadable(f"{opening} is not closed by {closing}")
        bodies.append(body)
    return without_ends(content), bodies


def _nothing_but(pattern: re.Pattern[str], body: str, opening: str, closing: str, *, required: bool = False) -> None:
    """Refuse a body in which something was opened that the pattern does not find."""
    if body.count(closing) >= body.count(opening):  # else the pattern would look for what is not there
        rest = pattern.sub("", body)
        if opening not in rest and not (required and rest == body):
            return
    unreadable(f"{opening}...> is missing, or not closed")


def _call(name: str, pairs: list[tuple[str, str]], tools: Sequence[ToolSpec]) -> ToolCall:
    if not name or "<" in name:
        unreadable("it has no name")
    types = parameter_types(name, tools)
    arguments = {key.strip(): typed(_unwrapped(raw), types.get(key.strip())) for key, raw in pairs}
    return ToolCall(name, arguments)


def _unwrapped(raw: str) -> str:
    """An argument without the line breaks that set it off from its tags."""
    return raw.removeprefix("\n").removesuffix("\n")


def _json(key: str, raw: str) -> Any:
    try:
        return read_json(raw)
    except ValueError as error:
        unreadable(f"{key} is not valid JSON ({error})")
