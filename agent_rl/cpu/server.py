"""The SGLang server on a CPU: verl's, with the cores that its tensor-parallel ranks may use.

SGLang refuses more ranks than NUMA nodes unless a variable gives their cores. Each server is a process of its own, so a
judge may have another number of ranks than the policy. Ranks reduce over gloo, which is slow: for tests of a recipe.
"""

from __future__ import annotations

import os
from typing import Any

import psutil
import ray
from verl.workers.rollout.sglang_rollout import async_sglang_server
from verl.workers.rollout.sglang_rollout.async_sglang_server import SGLangHttpServer, SGLangReplica

from agent_rl.cpu import engine_forks

__all__ = ["CPUHttpServer", "CPUReplica"]


class CPUHttpServer(SGLangHttpServer):
    """verl's SGLang server process, with cores for every rank."""

    async def launch_server(self, *args: Any, **kwargs: Any) -> None:
        """Start the engine's processes and serve; every rank may run on every core."""
        ranks = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        cores = ",".join(map(str, psutil.Process().cpu_affinity()))
        os.environ.setdefault("SGLANG_CPU_OMP_THREADS_BIND", "|".join([cores] * ranks))
        await super().launch_server(*args, **kwargs)


class CPUReplica(SGLangReplica):
    """The replica that verl finds under the name `sglang`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(CPUHttpServer)


def _prepare(server_args: Any, original: Any = async_sglang_server._set_envs_and_config) -> None:
    """Set SGLang's environment and start method as verl does, and then our own."""
    original(server_args)
    engine_forks.use()


async_sglang_server._set_envs_and_config = _prepare
