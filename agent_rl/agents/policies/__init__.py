"""Policies: the sources of turns outside training. `chat`, `tokens` (SGLang, vLLM) and `local` hold one kind each.

They may know endpoints and models; they must not know verl, nor what an evaluation does with the turns.
"""

from agent_rl.agents.policies.source import PolicySource, Sampling

__all__ = ["PolicySource", "Sampling"]
