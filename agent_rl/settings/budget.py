"""What an episode may spend: `agent_rl.budget` and `agent_rl.final_turn`."""

from pydantic import Field

from agent_rl.settings.section import Section

__all__ = ["BudgetSettings", "FinalTurnSettings"]


class BudgetSettings(Section):
    """What one episode may spend, beside verl's own limits on turns and tokens."""

    max_tool_calls: int | None = Field(default=None, ge=0)
    """Tool calls in one episode; null: no limit."""
    max_seconds: float | None = Field(default=None, gt=0)
    """Wall-clock seconds of one episode; null: no limit."""
    max_malformed: int = Field(default=3, ge=1)
    """Malformed turns in a row after which the episode ends."""
    max_repeats: int | None = Field(default=None, ge=1)
    """Turns in a row that only repeat earlier calls, after which the episode ends; null: no limit."""
    tool_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds that one tool call may take, unless the tool's entry has its own `timeout_s`."""


class FinalTurnSettings(Section):
    """A last turn, in which the policy is told that it must answer, when a budget is all but spent."""

    enabled: bool = False
    """Whether there is such a turn."""
    text: str | None = None
    """What it is told; null: the default."""
    reserve_tokens: int = Field(default=0, ge=0)
    """Tokens of the response kept for that turn and its text; 0: none when the tokens are spent."""
    reserve_seconds: float = Field(default=0.0, ge=0)
    """Seconds of `budget.max_seconds` kept for that turn; 0: none when the time is up."""
