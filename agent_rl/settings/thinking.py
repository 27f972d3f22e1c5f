"""What happens to `<think>` blocks: `agent_rl.thinking`."""

from typing import Literal

from agent_rl.settings.section import Section

__all__ = ["ThinkingSettings"]


class ThinkingSettings(Section):
    """What becomes of `<think>` blocks; a format never sees them."""

    history: Literal["keep", "template"] = "keep"
    """`keep`: the context keeps what was sampled. `template`: where the chat template drops thoughts of earlier turns,
    so does the context, and the trajectory becomes several training sequences."""
