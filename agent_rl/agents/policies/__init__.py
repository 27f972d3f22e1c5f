"""Policies: the sources of turns outside training. `chat`, `tokens` (SGLang, vLLM) and `local` each define one kind.

These modules may depend on endpoints and models, but not on verl or on an evaluation.
"""

from agent_rl.agents.policies.source import PolicySource, Sampling

__all__ = ["PolicySource", "Sampling"]
