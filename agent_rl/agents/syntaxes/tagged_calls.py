"""Syntaxes with a tag for each argument: qwen3_coder, seed, glm, minimax and deepseek_v4.

Each function takes a turn's text, including special tokens, and the tools, and returns the text around the calls and a
list of calls. An argument's text is read according to the tool's schema: "5" is a number only if the schema says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from agent_rl.agents.syntaxes.reading import parameter_types, read_call_json, typed, unreadable, without_ends
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

Parsed = tuple[str, list[ToolCall]]

_GLM_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_GLM_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
_DSML = "\uff5cDSML\uff5c"


class _Tag(NamedTuple):
    pattern: re.Pattern[str]
    opening: str
    closing: str

    def require_nothing_else(self, body: str, *, required: bool = False) -> None:
        """Reject a body with an opening tag that the pattern does not match."""
        if body.count(self.closing) >= body.count(self.opening):  # fewer closing tags mean that one is missing
            rest = self.pattern.sub("", body)
            if self.opening not in rest and not (required and rest == body):
                return
        unreadable(f"{self.opening}...> is missing, or not closed")


def _tag(name: str, opening: str) -> _Tag:
    """Return the tag `name`; `opening` is a regular expression for the rest of the opening tag, without `>`."""
    return _Tag(re.compile(rf"<{name}{opening}>(.*?)</{name}>", re.DOTALL), f"<{name}", f"</{name}>")


_FUNCTION, _PARAMETER = _tag("function", r"=([^<>\n]+)"), _tag("parameter", r"=([^<>\n]+)")
_INVOKE, _INVOKED = (_tag(name, r""" name=["']([^"'>]+)["']""") for name in ("invoke", "parameter"))
_DSML_INVOKE = _tag(f"{_DSML}invoke", r' name="([^">]+)"')
_DSML_PARAMETER = _tag(f"{_DSML}parameter", r' name="([^">]+)" string="(true|false)"')


def qwen3_coder(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `<tool_call><function=f><parameter=x>1</parameter></function></tool_call>` (Qwen3-Coder, Qwen3.5)."""
    content, calls = _nested(text, "tool_call", _FUNCTION, _PARAMETER)
    return content, [_call(name, pairs, tools) for name, pairs in calls]


def seed(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `<seed:tool_call><function=f><parameter=x>1</parameter></function></seed:tool_call>` (Seed-OSS)."""
    content, calls = _nested(text, "seed:tool_call", _FUNCTION, _PARAMETER)
    return content, [_call(name, pairs, tools) for name, pairs in calls]


def glm(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>` (GLM-4.5 and later)."""
    content, bodies = blocks(text, "<tool_call>", "</tool_call>")
    calls = []
    for body in bodies:
        name = body.partition("<arg_key>")[0].strip()
        pairs = _GLM_PAIR.findall(body) if len({body.count(tag) for tag in _GLM_TAGS}) == 1 else []
        if len(pairs) != body.count(_GLM_TAGS[0]):
            unreadable("an <arg_key> or <arg_value> is missing, or not closed")
        calls.append(_call(name, pairs, tools))
    return content, calls


def minimax(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse `<minimax:tool_call><invoke name="f"><parameter name="x">1</parameter></invoke></minimax:tool_call>`."""
    content, calls = _nested(text, "minimax:tool_call", _INVOKE, _INVOKED)
    return content, [_call(name, pairs, tools) for name, pairs in calls]


def deepseek_v4(text: str, tools: Sequence[ToolSpec]) -> Parsed:
    """Parse DSML (DeepSeek), which is minimax's form with `string="true"` for text, and `string="false"` for JSON."""
    content, calls = _nested(text, f"{_DSML}tool_calls", _DSML_INVOKE, _DSML_PARAMETER)
    return content, [
        ToolCall(name, {key: raw if text == "true" else read_call_json(raw, key) for key, text, raw in triples})
        for name, triples in calls
    ]


def _nested(text: str, block: str, call: _Tag, parameter: _Tag) -> tuple[str, list[tuple[str, list[Any]]]]:
    """Return the text before the first block, and each call's name with its matched parameters."""
    content, bodies = blocks(text, f"<{block}>", f"</{block}>")
    calls = []
    for body in bodies:
        call.require_nothing_else(body, required=True)
        for name, inner in call.pattern.findall(body):
            parameter.require_nothing_else(inner)
            calls.append((name.strip(), parameter.pattern.findall(inner)))
    return content, calls


def blocks(text: str, opening: str, closing: str) -> tuple[str, list[str]]:
    """Return the text before the first block, and the blocks.

    Raises:
        MalformedActionError: a block is not closed.
    """
    content, *rest = text.split(opening)
    bodies = []
    for part in rest:
        body, closed, _ = part.partition(closing)
        if not closed:
            unreadable(f"{opening} is not closed by {closing}")
        bodies.append(body)
    return without_ends(content), bodies


def _call(name: str, pairs: list[tuple[str, str]], tools: Sequence[ToolSpec]) -> ToolCall:
    if not name or "<" in name:
        unreadable("it has no name")
    types = parameter_types(name, tools)
    arguments = {
        key.strip(): typed(raw.removeprefix("\n").removesuffix("\n"), types.get(key.strip())) for key, raw in pairs
    }
    return ToolCall(name, arguments)
