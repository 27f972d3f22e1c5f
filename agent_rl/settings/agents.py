"""The sections of the agents: `agent_rl.code_act`, `folding`, `plan_act`, `react`, `search` and `user_sim`."""

from typing import Any, Literal

from pydantic import Field

from agent_rl.settings.section import Section

__all__ = [
    "CodeActSettings",
    "FoldingSettings",
    "PlanActSettings",
    "ReactSettings",
    "SearchSettings",
    "UserSimSettings",
]


class _TextTurns(Section):
    instructions: str | None = None
    """System text with `{tools}` and `{tool_names}` filled in; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries an observation."""


class CodeActSettings(Section):
    """The fenced code of `code_act_agent`."""

    instructions: str | None = None
    """System text with `{answer}` filled in; null: the default; empty: none."""
    answer: Literal["boxed", "text"] = "boxed"
    """The answer in a turn without code: `\\boxed{...}`, which the instructions then require, or the whole text."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that carries the output."""
    tool: str | None = None
    """The tool that executes code; null: the only one, or `python`."""


class FoldingSettings(Section):
    """How `folding_agent` folds a history into notes when the context is nearly full."""

    loop: str = "react_agent"
    """The agent that it wraps, with its format, settings and user."""
    reserve_tokens: int = Field(default=512, ge=1)
    """Tokens of `data.max_response_length` that are kept for the request for notes and the notes."""
    max_folds: int = Field(default=8, ge=0)
    """Folds of one episode, at most; each makes one more training sequence."""
    instructions: str | None = None
    """The request for notes; null: the default."""


class PlanActSettings(_TextTurns):
    """The plan and the ReAct turns of `plan_act_agent`."""


class ReactSettings(_TextTurns):
    """The text format of `react_agent`."""

    examples: tuple[str, ...] = ()
    """Whole episodes that follow the instructions, for a few-shot prompt; `default` means the built-in ones."""
    parsing: Literal["tolerant", "strict"] = "tolerant"
    """`strict`: a turn that deviates from the instructions in any way is malformed."""


class SearchSettings(Section):
    """The tags of `search_agent`."""

    instructions: str | None = None
    """System text; null: the default; empty: none."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message with the search results."""
    tool: str | None = None
    """The tool that a query goes to; null: the only one, or `search`."""


class UserSimSettings(_TextTurns):
    """The simulated user of `user_sim_agent`, and the agent's text format."""

    user: str = "scripted"
    """`scripted`, `llm`, or a class of `agent_rl.agents.users.user.User`, `package.module.Class` or `file.py:Class`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """What the class takes."""
    native: bool = False
    """Whether the agent writes as `tool_call_agent` does, and a turn without a call is a message; `instructions` and
    `observation_role` then have no effect."""
