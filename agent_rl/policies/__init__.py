"""Policies: what an episode can talk to besides verl's server. One file, one `PolicySource` for each kind of model.

`chat` asks any OpenAI-compatible endpoint and needs nothing but HTTP. `sglang`, `vllm` and `local` pass token ids, as
training does, and need verl for the text around turns.
"""

from agent_rl.policies.source import PolicySource, Sampling

__all__ = ["PolicySource", "Sampling"]
