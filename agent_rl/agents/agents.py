"""What each of our agents is made of, by its name: in training and in evaluation alike.

An agent is the format of its turns, the user that it talks with (most have none), and what stands between it and the
policy (most have nothing).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent_rl.agents.code_act import CodeActFormat
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import Policy
from agent_rl.agents.folding import FoldingPolicy
from agent_rl.agents.plan_act import PlanActFormat
from agent_rl.agents.react import ReactFormat
from agent_rl.agents.search import SearchFormat
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.agents.user_sim import UserSimFormat
from agent_rl.agents.users.user import ROW_KEY, User, load_user
from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings import AgentRLSettings

__all__ = ["AGENTS", "make_conversation", "make_format", "make_user"]

_FOLDED = (
    "code_act_agent",
    "plan_act_agent",
    "react_agent",
    "search_agent",
    "tool_call_agent",
    "user_sim_agent",
)
AGENTS = (*_FOLDED, "folding_agent")
"""The names."""


def make_format(agent: str, settings: AgentRLSettings, syntax: str = "hermes") -> Format:
    """How an agent's turns are written and read, as configured.

    Args:
        agent: its name.
        settings: the section `agent_rl`.
        syntax: of native tool calls, `multi_turn.format`.

    Raises:
        ConfigError: for a name that is not one of ours, or a setting that the format cannot use.
    """
    agent = _acting(agent, settings)
    if agent == "code_act_agent":
        code_act = settings.code_act
        return CodeActFormat(code_act.instructions, code_act.answer, code_act.observation_role, code_act.tool)
    if agent == "plan_act_agent":
        return PlanActFormat(settings.plan_act.instructions, settings.plan_act.observation_role)
    if agent == "search_agent":
        search = settings.search
        return SearchFormat(search.instructions, search.observation_role, search.tool)
    if agent == "tool_call_agent":
        return ToolCallFormat(syntax)
    if agent == "user_sim_agent":
        user_sim = settings.user_sim
        return (
            ToolCallFormat(syntax)
            if user_sim.native
            else UserSimFormat(user_sim.instructions, user_sim.observation_role)
        )
    return ReactFormat.configured(settings.react)


def make_user(agent: str, settings: AgentRLSettings, extra_info: Mapping[str, Any] | None) -> User | None:
    """Who the agent talks with, for one episode; None: nobody.

    Args:
        agent: its name.
        settings: the section `agent_rl`.
        extra_info: the row's, of which the entry `user` is the user's own.

    Raises:
        ConfigError: for a class or a config that cannot be used, or a row without a user.
    """
    if _acting(agent, settings) != "user_sim_agent":
        return None
    about = (extra_info or {}).get("user")
    if about is None:
        raise ConfigError(ROW_KEY, "the row has none", "Give its user there, for example {'goal': ...}")
    user_sim = settings.user_sim
    return load_user(user_sim.user, user_sim.config)(MappingProxyType(user_sim.config), about)


def make_conversation(agent: str, settings: AgentRLSettings, policy: Policy, response_length: int) -> Policy:
    """What the agent's episode talks to: the policy, or something around it.

    Args:
        agent: its name.
        settings: the section `agent_rl`.
        policy: a fresh conversation.
        response_length: tokens that it may take.

    Raises:
        ConfigError: when what is kept for notes leaves nothing for turns.
    """
    if agent != "folding_agent":
        return policy
    folding = settings.folding
    if folding.reserve_tokens >= response_length:
        problem = f"{folding.reserve_tokens} is not less than data.max_response_length={response_length}"
        raise ConfigError("agent_rl.folding.reserve_tokens", problem, "Lower it")
    return FoldingPolicy(
        policy,
        reserve_tokens=folding.reserve_tokens,
        max_folds=folding.max_folds,
        instructions=folding.instructions,
    )


def _acting(agent: str, settings: AgentRLSettings) -> str:
    """The agent whose turns are written: `folding_agent` folds the history of another."""
    if agent == "folding_agent":
        if settings.folding.loop not in _FOLDED:
            problem = f"there is no loop {settings.folding.loop!r} to fold"
            raise ConfigError("agent_rl.folding.loop", problem, did_you_mean(settings.folding.loop, _FOLDED))
        return settings.folding.loop
    if agent not in AGENTS:
        raise ConfigError("loop", f"there is no loop {agent!r}", did_you_mean(agent, AGENTS))
    return agent
