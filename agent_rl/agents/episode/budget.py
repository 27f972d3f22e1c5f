"""`EpisodeBudget`: the limits of an episode, and the final turn that is announced when a limit is nearly reached.

Without a final turn, an episode ends as soon as a budget is spent. With a final turn, a message announces the policy's
last turn. If the final turn is not an answer, the episode ends with the stop reason of the spent budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings
from agent_rl.tools.truncation import TruncateSide
from agent_rl.trajectory import ToolCall, call_key

FINAL_TURN = "This is your last turn: no more tool calls are possible. Give your final answer now."
DEFAULT_MAX_TURNS = 16
"""The limit on turns when `multi_turn.max_assistant_turns` is null."""
UNLIMITED = 1 << 30
"""A token limit so high that only the server's own limit applies."""


class EpisodeLimits(NamedTuple):
    """verl's settings for an episode, copied to plain values, because reading them from omegaconf is slow.

    Each field has the name that verl uses in `actor_rollout_ref.rollout` or in its `multi_turn` section.
    """

    prompt_length: int = UNLIMITED
    """Maximum number of tokens in the prompt."""
    response_length: int = UNLIMITED
    """Maximum number of tokens after the prompt, including observations."""
    max_assistant_turns: int | None = None
    """Maximum number of assistant turns; None means `DEFAULT_MAX_TURNS`."""
    max_parallel_calls: int = 1
    """Maximum number of tool calls to run per turn."""
    max_tool_response_length: int = 256
    """Maximum number of characters in a tool's result; the policy does not see the rest."""
    tool_response_truncate_side: TruncateSide = "middle"
    """Which part of a long result is cut: the start (`left`), the middle, or the end (`right`)."""
    format: str = "hermes"
    """The syntax of native tool calls."""


@dataclass(frozen=True, slots=True)
class FinalTurn:
    """The announcement of the last turn, and the budget reserved for it."""

    text: str = FINAL_TURN
    reserve_tokens: int = 0
    """Tokens reserved for the final turn and `text`; if 0, no final turn follows when the tokens run out."""
    reserve_seconds: float = 0.0
    """Seconds of `max_seconds` reserved for the final turn; if 0, no final turn follows when the time runs out."""


@dataclass(frozen=True, slots=True)
class EpisodeBudget:
    """The limits of one episode, except the token limit, which the policy enforces."""

    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_seconds: float | None = None
    max_malformed: int = 3
    """The episode ends after this number of malformed turns in a row."""
    max_repeats: int | None = None
    """The episode ends after this number of turns in a row that only repeat earlier calls."""
    final: FinalTurn | None = None
    """The final turn; if None, no turn is announced as the last."""


class Repeats:
    """Counts consecutive turns in an episode that only repeat calls from earlier turns."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.in_a_row = 0
        """Number of turns in a row that only repeated earlier calls."""

    def add(self, calls: Sequence[ToolCall]) -> None:
        """Count one turn, given its calls."""
        keys = {call_key(call) for call in calls}
        self.in_a_row = self.in_a_row + 1 if keys <= self._seen else 0
        self._seen |= keys


def make_budget(settings: AgentRLSettings, limits: EpisodeLimits) -> EpisodeBudget:
    """Return the budget that is configured for an episode.

    Raises:
        ConfigError: the final turn's reserve leaves nothing for the turns before it.
    """
    return EpisodeBudget(
        max_turns=limits.max_assistant_turns or DEFAULT_MAX_TURNS,
        max_tool_calls=settings.budget.max_tool_calls,
        max_seconds=settings.budget.max_seconds,
        max_malformed=settings.budget.max_malformed,
        max_repeats=settings.budget.max_repeats,
        final=_final_turn(settings, limits),
    )


def _final_turn(settings: AgentRLSettings, limits: EpisodeLimits) -> FinalTurn | None:
    final = settings.final_turn
    if not final.enabled:
        return None
    if final.reserve_tokens >= limits.response_length:
        problem = f"{final.reserve_tokens} is not less than data.max_response_length={limits.response_length}"
        raise ConfigError("agent_rl.final_turn.reserve_tokens", problem, "Lower it")
    if final.reserve_seconds >= (settings.budget.max_seconds or float("inf")):
        problem = f"{final.reserve_seconds:g} is not less than agent_rl.budget.max_seconds"
        raise ConfigError("agent_rl.final_turn.reserve_seconds", problem, "Lower it")
    text = FINAL_TURN if final.text is None else final.text
    return FinalTurn(text, final.reserve_tokens, final.reserve_seconds)
