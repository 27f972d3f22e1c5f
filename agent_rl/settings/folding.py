"""How `folding_agent` summarizes its history: `agent_rl.folding`."""

from pydantic import Field

from agent_rl.settings.section import Section

__all__ = ["FoldingSettings"]


class FoldingSettings(Section):
    """How `folding_agent` folds a history into notes when the context is nearly full."""

    loop: str = "react_agent"
    """The loop whose format, settings and user it has."""
    reserve_tokens: int = Field(default=512, ge=1)
    """Of `data.max_response_length`, kept for being asked for notes and for writing them."""
    max_folds: int = Field(default=8, ge=0)
    """How often at most; each makes one more training sequence."""
    instructions: str | None = None
    """What asks for notes; null: the default."""
