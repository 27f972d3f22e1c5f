"""Policies outside training. The `chat`, `tokens` (SGLang, vLLM) and `local` modules each define one kind of policy.

Modules in this package may depend on endpoints and models, but not on verl or on evaluation code.
"""

from agent_rl.agents.policies.source import PolicySource, Sampling

__all__ = ["PolicySource", "Sampling"]
