"""The fenced code of `code_act_agent`: `agent_rl.code_act`."""

from typing import Literal

from agent_rl.settings.section import Section

__all__ = ["CodeActSettings"]


class CodeActSettings(Section):
    """The fenced code of `code_act_agent`."""

    instructions: str | None = None
    """System text with `{answer}` filled in; null: the default; empty: none."""
    answer: Literal["boxed", "text"] = "boxed"
    """What answers in a turn without code: `\\boxed{...}`, which is then asked for, or the whole text."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries the output."""
    tool: str | None = None
    """The tool that executes code; null: the only one, or `python`."""
