"""`Budget`: what one episode may spend, and whether the policy gets a final turn when it is all but spent.

Without a final turn an episode ends where a budget does. With one, the policy's last turn is announced: what it says
then is its answer, or the episode ends by the budget that was spent.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FINAL_TURN", "Budget", "FinalTurn"]

FINAL_TURN = "This is your last turn: no more tool calls are possible. Give your final answer now."


@dataclass(frozen=True, slots=True)
class FinalTurn:
    """How the last turn is announced, and what is kept for it."""

    text: str = FINAL_TURN
    reserve_tokens: int = 0
    """Tokens of the policy's budget for that turn and `text`; 0: no such turn when the tokens are spent."""
    reserve_seconds: float = 0.0
    """Of `max_seconds`; 0: no such turn when the time is up."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one episode may spend; the number of tokens is the policy's business."""

    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_seconds: float | None = None
    max_malformed: int = 3
    """Malformed turns in a row after which the episode ends."""
    max_repeats: int | None = None
    """Turns in a row that only repeat earlier calls, after which the episode ends."""
    final: FinalTurn | None = None
    """None: no turn is announced as the last."""
