"""SGLang's arguments under the names that the installed release knows.

0.5.14 has renamed those about CUDA graphs, without an alias for who calls `ServerArgs(**arguments)` as verl does. A
configuration may have either name, of the policy's engine and of served models.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

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


def rename_arguments(module: ModuleType) -> None:
    """`verl.workers.rollout.sglang_rollout.async_sglang_server`: give the engine its arguments under names it knows."""
    original, names = module.SGLangHttpServer.launch_server, inspect.signature(module.ServerArgs).parameters

    @functools.wraps(original)
    async def launch_server(self: Any, *args: Any, **kwargs: Any) -> None:
        given = (self.config.get("engine_kwargs") or {}).get("sglang")
        if given:
            known = known_arguments(given, names)
            given.clear()
            given.update(known)
        await original(self, *args, **kwargs)

    module.SGLangHttpServer.launch_server = launch_server
