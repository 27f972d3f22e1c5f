"""The reward models that a run serves itself: `agent_rl.reward.models`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from agent_rl.settings.errors import InvalidValueError
from agent_rl.settings.section import Section

__all__ = ["ServedModelName", "ServedModelSettings"]


def _usable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InvalidValueError("the name becomes part of an actor's name", "Use the characters A-Z a-z 0-9 . _ -")
    return name


ServedModelName = Annotated[str, AfterValidator(_usable)]


class ServedModelSettings(Section):
    """One model; what is not here is as `reward.reward_model.rollout` has it."""

    path: str
    """Folder or hub name."""
    kind: Literal["discriminative", "generative"] = "discriminative"
    engine: Literal["sglang", "vllm"] = "sglang"
    placement: Literal["own", "shared"] = "own"
    """`own`: GPUs of its own, beside the trainer's. `shared`: the trainer's GPUs, into which it is loaded after
    sampling, to score, and from which it is unloaded before the update."""
    n_gpus_per_node: int = Field(default=1, ge=1)
    """Of its own; with `shared` it has a replica on every `tensor_parallel_size` of the trainer's."""
    nnodes: int = Field(default=1, ge=1)
    tensor_parallel_size: int = Field(default=1, ge=1)
    gpu_memory_utilization: float = Field(default=0.5, gt=0, lt=1)
    """Share of each GPU for weights and cache."""
    temperature: float = Field(default=0.0, ge=0)
    """At which a generative model writes, unless the component says otherwise."""
    max_model_len: int | None = Field(default=None, ge=1)
    """Longest sequence in tokens; null: the model's own limit."""
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More arguments of the engine's server."""
