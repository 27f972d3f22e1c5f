"""One episode: the parts of an agent (`agent`, `loop`), the run (`episode`), and the interfaces it uses.

Nothing here may depend on a text format, an engine or verl.
"""

from agent_rl.agents.episode.hooks import Hooks

__all__ = ["Hooks"]
