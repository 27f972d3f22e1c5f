"""The text format of `react_agent`: `agent_rl.react`."""

from typing import Literal

from agent_rl.settings.section import Section

__all__ = ["ReactSettings"]


class ReactSettings(Section):
    """The text format of `react_agent`."""

    instructions: str | None = None
    """System text with `{tools}` and `{tool_names}` filled in; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries an observation."""
    examples: tuple[str, ...] = ()
    """Whole episodes that follow the instructions, for a few-shot prompt; the word `default` stands for ours."""
    parsing: Literal["tolerant", "strict"] = "tolerant"
    """`strict`: only what is written to the letter of the instructions is read; else it is malformed."""
