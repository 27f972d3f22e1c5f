"""SGLang's arguments under the names that the installed release knows.

0.5.14 has renamed those about CUDA graphs, without an alias for who calls `ServerArgs(**arguments)` as verl does. A
configuration may have either name, of the policy's engine and of served models.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import version
from typing import Any

from omegaconf import open_dict
from packaging.version import Version

__all__ = ["RENAMED", "RENAMED_IN", "known_arguments", "rename_arguments"]

RENAMED_IN = "0.5.14"
RENAMED = {
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
    "cuda_graph_bs": "cuda_graph_bs_decode",
    "disable_piecewise_cuda_graph": "disable_prefill_cuda_graph",
    "piecewise_cuda_graph_max_tokens": "cuda_graph_max_bs_prefill",
    "piecewise_cuda_graph_tokens": "cuda_graph_bs_prefill",
    "piecewise_cuda_graph_compiler": "cuda_graph_tc_compiler",
}
"""The names of that release by those of earlier releases; their values are the same."""


def known_arguments(arguments: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The arguments under names that the engine knows; of both names of one, the newer's value counts."""
    found = dict(arguments)
    for older, newer in RENAMED.items():
        values = [found.pop(name) for name in (newer, older) if name in found]
        if values:
            found[newer if newer in known else older] = values[0]
    return found


def rename_arguments(rollout: Any) -> None:
    """Give the arguments of a rollout's SGLang engine the names that the installed release knows.

    Args:
        rollout: verl's configuration of a rollout, the policy's or a served model's; is changed.
    """
    arguments = (rollout.get("engine_kwargs") or {}).get("sglang")
    if rollout.get("name") == "sglang" and arguments:  # verl leaves the name of an unused reward model missing
        is_newer = Version(version("sglang")) >= Version(RENAMED_IN)
        with open_dict(rollout):
            names = RENAMED.values() if is_newer else RENAMED.keys()
            rollout.engine_kwargs.sglang = known_arguments(arguments, names)
