"""Settings of algorithms for which verl has no keys: `agent_rl.gigpo`."""

from __future__ import annotations

from pydantic import Field

from agent_rl.settings.section import Section


class GigpoSettings(Section):
    """Settings for the advantage of states in `algo=gigpo`."""

    weight: float = Field(default=1.0, ge=0)
    """Factor by which a state's advantage is multiplied before it is added to the trajectory's advantage."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Per-turn discount of later rewards in the reward to go, which is compared between turns in the same state."""
    history: int = Field(default=0, ge=0)
    """Number of previous turns whose states and texts must also be equal for two turns to have the same state."""
