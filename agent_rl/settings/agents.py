"""The agents' sections: `agent_rl.code_act`, `folding`, `plan_act`, `react`, `search` and `user_sim`."""

from typing import Any, Literal

from pydantic import Field

from agent_rl.settings.section import Section


class _Turns(Section):
    instructions: str | None = None
    """System message. Null means the default message, and an empty text means no message."""
    observation_role: Literal["user", "tool"] = "user"
    """Role of the message that contains an observation."""


class CodeActSettings(_Turns):
    """Settings for the code blocks of `code_act_agent`. The agent fills in `{answer}` in the instructions."""

    answer: Literal["boxed", "text"] = "boxed"
    """Place of the answer in a turn without code. `boxed`: in `\\boxed{...}`, which the instructions then ask for.
    `text`: the whole text is the answer."""
    tool: str | None = None
    """Name of the tool that executes code. Null means the only tool, or `python` if there are several."""


class FoldingSettings(Section):
    """Settings for how `folding_agent` folds a history into notes when the context is nearly full."""

    loop: str = "react_agent"
    """Name of the wrapped agent, which keeps its format, settings and user."""
    reserve_tokens: int = Field(default=512, ge=1)
    """Number of tokens of `data.max_response_length` that are reserved for the notes and the request for them."""
    max_folds: int = Field(default=8, ge=0)
    """Maximum number of folds per episode. Each fold adds a training sequence."""
    instructions: str | None = None
    """Text of the request for notes. Null means the default."""


class PlanActSettings(_Turns):
    """Settings for the plan and the ReAct turns of `plan_act_agent`, which fills in `{tools}` and `{tool_names}`."""


class ReactSettings(_Turns):
    """Settings for the text format of `react_agent`. It fills in `{tools}` and `{tool_names}` in the instructions."""

    examples: tuple[str, ...] = ()
    """Complete example episodes after the instructions, for a few-shot prompt. `default` means built-in examples."""
    parsing: Literal["tolerant", "strict"] = "tolerant"
    """`strict`: a turn that deviates from the instructions in any way is malformed."""


class SearchSettings(_Turns):
    """Settings for the tags of `search_agent`."""

    tool: str | None = None
    """Name of the tool that receives queries. Null means the only tool, or `search` if there are several."""


class UserSimSettings(_Turns):
    """Settings for the simulated user of `user_sim_agent`, and for the agent's text format. The agent fills in
    `{tools}` and `{tool_names}` in the instructions.
    """

    user: str = "scripted"
    """`scripted`, `llm`, or your `agent_rl.agents.users.user.User`: `package.module.Class` or `file.py:Class`."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the user's class."""
    native: bool = False
    """Whether the agent writes calls like `tool_call_agent`. A turn without a call is then a message to the user, and
    `instructions` and `observation_role` have no effect."""
