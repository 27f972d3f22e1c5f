"""Policies: where an episode's turns come from outside training. One file, one `PolicySource`, for each kind of model.

They may know endpoints and models; they must not know verl, nor what an evaluation does with the turns.
"""

from agent_rl.policies.source import PolicySource, Sampling

__all__ = ["PolicySource", "Sampling"]
