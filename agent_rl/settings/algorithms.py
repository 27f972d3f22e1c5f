"""Settings of algorithms that verl has no keys for: `agent_rl.gigpo`."""

from __future__ import annotations

from pydantic import Field

from agent_rl.settings.section import Section


class GigpoSettings(Section):
    """The advantage of states in `algo=gigpo`."""

    weight: float = Field(default=1.0, ge=0)
    """Factor of a state's advantage, which is added to that of the trajectory."""
    discount: float = Field(default=0.95, ge=0, le=1)
    """Factor per turn of later rewards in the reward to go that is compared between turns in the same state."""
    history: int = Field(default=0, ge=0)
    """Number of previous turns whose states and texts must be equal too; more gives fewer turns per state."""
