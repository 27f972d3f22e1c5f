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
    """One served reward model; `reward.reward_model.rollout` gives every other setting."""

    path: str
    """Folder or hub name."""
    kind: Literal["discriminative", "generative"] = "discriminative"
    """`discriminative`: a model with a head that gives a number. `generative`: one that writes its judgement."""
    engine: Literal["sglang", "vllm"] = "sglang"
    """Server that runs the model."""
    placement: Literal["own", "shared"] = "own"
    """`own`: GPUs of its own, beside the trainer's. `shared`: the trainer's GPUs, into which it is loaded after
    sampling, to score, and from which it is unloaded before the update."""
    n_gpus_per_node: int = Field(default=1, ge=1)
    """GPUs of its own on each node; with `shared` it has a replica on every `tensor_parallel_size` of the trainer's."""
    nnodes: int = Field(default=1, ge=1)
    """Nodes of its own, each with `n_gpus_per_node` GPUs."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs over which each replica of the model is split."""
    gpu_memory_utilization: float = Field(default=0.5, gt=0, lt=1)
    """Share of each GPU for weights and cache."""
    temperature: float = Field(default=0.0, ge=0)
    """Temperature of a generative model, unless the component sets its own."""
    max_model_len: int | None = Field(default=None, ge=1)
    """Longest sequence in tokens; null: the model's own limit."""
    engine_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More arguments of the engine's server."""
