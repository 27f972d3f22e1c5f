"""Where trajectories are stored: `agent_rl.trace`."""

from agent_rl.settings.section import Section

__all__ = ["TraceSettings"]


class TraceSettings(Section):
    """Where trajectories are kept."""

    path: str | None = None
    """JSONL file to which every trajectory is appended; null: none."""
    tokens: bool = False
    """Whether a trajectory keeps its token ids, mask and log-probs as well, for `agent-rl audit tokens`."""
