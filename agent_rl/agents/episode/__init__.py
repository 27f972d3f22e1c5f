"""One episode: what an agent is made of (`agent`, `loop`), how it runs (`episode`), and the interfaces that it uses.

Nothing here may know a text format, an engine or verl.
"""

from agent_rl.agents.episode.hooks import Hooks

__all__ = ["Hooks"]
