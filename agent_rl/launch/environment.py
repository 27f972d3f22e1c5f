"""Detects a Ray cluster to join and an accelerator to use."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["JOINING", "SIZES", "has_accelerator", "joins_ray"]

SIZES = ("num_cpus", "num_gpus", "object_store_memory", "resources")
"""Keys of `ray_kwargs.ray_init` that Ray refuses when it joins a cluster."""

JOINING = tuple(f"++ray_kwargs.ray_init.{key}=null" for key in SIZES)
"""Overrides for a trainer that joins a Ray cluster: its nodes know their sizes, and Ray refuses them when it joins."""


def joins_ray(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the trainer joins a Ray cluster that runs already, instead of starting one."""
    return environ.get("RAY_ADDRESS", "local") not in ("", "local")


def has_accelerator() -> bool:
    """Whether there is a device file of an NVIDIA or AMD GPU or an Ascend NPU; without one verl would hang."""
    return any(any(Path("/dev").glob(pattern)) for pattern in ("nvidia[0-9]*", "kfd", "davinci[0-9]*", "dxg"))
