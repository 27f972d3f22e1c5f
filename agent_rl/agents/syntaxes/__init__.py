"""Parses the native tool calls of models: one pure function per syntax, under verl's name for the syntax.

verl has no parser for `llama3_json`, `mistral` or `deepseek_v3`. All other functions here read the same calls as
verl's parsers, but where verl's parser drops a call, they raise a `MalformedActionError`, which the policy sees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent_rl.agents.syntaxes import gemma_calls, json_calls, tagged_calls
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

__all__ = ["SYNTAXES", "Syntax"]


@dataclass(frozen=True, slots=True)
class Syntax:
    """A syntax for tool calls."""

    read: Callable[[str, Sequence[ToolSpec]], tuple[str, list[ToolCall]]]
    """Splits a turn's text, special tokens included, into the text around the calls and the list of calls.

    Raises MalformedActionError for a call that cannot be read.
    """
    stop_tokens: tuple[str, ...] = ()
    """Special tokens that end a turn, in addition to the tokens in the model's configuration."""


SYNTAXES = {
    "hermes": Syntax(json_calls.hermes),
    "qwen3_coder": Syntax(tagged_calls.qwen3_coder),
    "glm": Syntax(tagged_calls.glm, ("<|observation|>",)),
    "kimi": Syntax(json_calls.kimi, ("<|im_end|>",)),
    "gpt-oss": Syntax(json_calls.gpt_oss),
    "seed": Syntax(tagged_calls.seed),
    "minimax": Syntax(tagged_calls.minimax),
    "deepseek_v3": Syntax(json_calls.deepseek_v3),
    "deepseek_v4": Syntax(tagged_calls.deepseek_v4),
    "gemma4": Syntax(gemma_calls.gemma4, ("<tool_call|>",)),
    "llama3_json": Syntax(json_calls.llama3_json),
    "mistral": Syntax(json_calls.mistral),
}
"""The syntaxes, keyed by the value of `actor_rollout_ref.rollout.multi_turn.format`."""
