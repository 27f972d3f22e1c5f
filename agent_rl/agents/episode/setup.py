"""What a configuration and a row say about an episode: its tools and its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

from agent_rl.agents.episode.budget import FINAL_TURN, Budget, FinalTurn
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings import AgentRLSettings, CassetteSettings
from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.cassette import Cassette
from agent_rl.tools.truncation import ResultLimit, Tokenizer, TruncateSide

__all__ = ["DEFAULT_MAX_TURNS", "MultiTurn", "make_budget", "open_tools"]

DEFAULT_MAX_TURNS = 16
"""When `multi_turn.max_assistant_turns` is null."""


class MultiTurn(Protocol):
    """What counts of verl's `actor_rollout_ref.rollout.multi_turn`."""

    @property
    def max_assistant_turns(self) -> int | None:
        """Null: `DEFAULT_MAX_TURNS`."""

    @property
    def max_parallel_calls(self) -> int:
        """Calls of one turn that are run."""

    @property
    def max_tool_response_length(self) -> int:
        """Characters of a result that the policy is shown."""

    @property
    def tool_response_truncate_side(self) -> TruncateSide:
        """What is cut."""


def make_budget(settings: AgentRLSettings, multi_turn: MultiTurn, response_length: int) -> Budget:
    """What one episode may spend.

    Raises:
        ConfigError: where what is kept for the final turn leaves nothing for those before it.
    """
    return Budget(
        max_turns=multi_turn.max_assistant_turns or DEFAULT_MAX_TURNS,
        max_tool_calls=settings.budget.max_tool_calls,
        max_seconds=settings.budget.max_seconds,
        max_malformed=settings.budget.max_malformed,
        max_repeats=settings.budget.max_repeats,
        final=_final_turn(settings, response_length),
    )


def _final_turn(settings: AgentRLSettings, response_length: int) -> FinalTurn | None:
    final = settings.final_turn
    if not final.enabled:
        return None
    if final.reserve_tokens >= response_length:
        problem = f"{final.reserve_tokens} is not less than data.max_response_length={response_length}"
        raise ConfigError("agent_rl.final_turn.reserve_tokens", problem, "Lower it")
    if final.reserve_seconds >= (settings.budget.max_seconds or float("inf")):
        problem = f"{final.reserve_seconds:g} is not less than agent_rl.budget.max_seconds"
        raise ConfigError("agent_rl.final_turn.reserve_seconds", problem, "Lower it")
    text = FINAL_TURN if final.text is None else final.text
    return FinalTurn(text, final.reserve_tokens, final.reserve_seconds)


def open_tools(
    specs: list[ToolSpec],
    row: Mapping[str, Any],
    settings: AgentRLSettings,
    multi_turn: MultiTurn,
    tokenizer: Tokenizer | None,
) -> ToolSession:
    """The tools of one row's trajectory.

    Args:
        specs: all tools that are configured.
        row: its columns `extra_info.tool_selection` and `tools_kwargs` keep verl's meaning.
        settings: the `agent_rl` section.
        multi_turn: verl's section of that name.
        tokenizer: counts where `agent_rl.tools.max_result_tokens` is set.

    Raises:
        UnscoredError: the row selects a tool that is not configured.
    """
    tokens = settings.tools.max_result_tokens
    cassette = _cassette(settings.tools.cassette)
    return ToolSession(
        _selected(specs, (row.get("extra_info") or {}).get("tool_selection")),
        tools_kwargs=row.get("tools_kwargs") or {},
        default_timeout_s=settings.budget.tool_timeout_s,
        max_parallel_calls=multi_turn.max_parallel_calls,
        result_limit=ResultLimit(
            chars=multi_turn.max_tool_response_length if tokens is None else None,
            tokens=tokens,
            tokenizer=tokenizer,
            side=multi_turn.tool_response_truncate_side,
        ),
        cassette=cassette and cassette.scoped(_label(row)),
        cache_path=settings.tools.cache_path,
        reuse_results=settings.tools.reuse_results,
    )


@cache
def _cassette(settings: CassetteSettings) -> Cassette | None:
    """The one cassette of a process: its trajectories share what has been replayed."""
    if settings.mode is None or settings.path is None:
        return None
    return Cassette.record(settings.path) if settings.mode == "record" else Cassette.replay(settings.path)


def _label(row: Mapping[str, Any]) -> str:
    """What a trajectory is called in every run over the same rows."""
    split = (row.get("extra_info") or {}).get("split")
    return "/".join(str(part) for part in (row.get("global_steps"), split, row.get("index"), row.get("session_id", 0)))


def _selected(tools: list[ToolSpec], selection: Sequence[str] | None) -> list[ToolSpec]:
    """The row's subset of the tools."""
    if not selection:
        return tools
    known = {tool.name: tool for tool in tools}
    if missing := [name for name in selection if name not in known]:
        raise UnscoredError(
            f"extra_info.tool_selection names {missing}, but multi_turn.tool_config_path has only {sorted(known)}: "
            "mend the row or add the tools"
        )
    return [known[name] for name in selection]
