"""Registers CPU implementations with verl 0.9.1, and patches verl where it fails on a CPU and has no extension point.

Each function changes one module right after its import. Patches that only make a small run faster are in `speed`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from agent_rl.cpu import engine_forks, fork_server, speed


def gloo_process_group(module: ModuleType) -> None:
    """`verl.utils.distributed`: use the backend "gloo" on a CPU.

    verl builds "cpu:gloo,<device>:<backend>", which contains the cpu device twice; torch rejects such a string.
    """
    original = module.initialize_global_process_group_ray

    @functools.wraps(original)
    def initialize(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend="gloo")

    def initialize_supervised(timeout_second: int = 36000) -> tuple[int, int, int]:
        initialize(timeout_second)
        return int(os.environ["LOCAL_RANK"]), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    module.initialize_global_process_group_ray = initialize  # type: ignore[attr-defined]
    module.initialize_global_process_group = initialize_supervised  # type: ignore[attr-defined]


def training_engines(module: ModuleType) -> None:
    """`verl.workers.engine.fsdp.transformer_impl`: register training engines for the `cpu` device."""
    from agent_rl.cpu import engine  # noqa: F401 - the import registers the training engines


def weight_transport(module: ModuleType) -> None:
    """`verl.workers.rollout.base`: register the weight transport for a CPU under the name that verl looks up."""
    module._ROLLOUT_REGISTRY[("sglang", "async")] = "agent_rl.cpu.rollout.CPUServerAdapter"


def engine_processes(module: ModuleType) -> None:
    """`verl.workers.rollout.sglang_rollout.async_sglang_server`: fork SGLang's processes with `engine_forks`."""
    original = module._set_envs_and_config

    @functools.wraps(original)
    def set_envs_and_config(server_args: Any) -> None:
        original(server_args)
        engine_forks.use()

    module._set_envs_and_config = set_envs_and_config  # type: ignore[attr-defined]


def checkpoint_engine(module: ModuleType) -> None:
    """`verl.checkpoint_engine`: replace verl's `nccl` engine, which sends weights to standalone rollout servers."""
    from agent_rl.cpu import shared_memory  # noqa: F401 - the import registers the checkpoint engine


def value_head_attention(module: ModuleType) -> None:
    """`verl.utils.model`: load a critic with the attention that its configuration sets, not with flash-attn."""

    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation=model_config._attn_implementation,
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = load  # type: ignore[attr-defined]


HOOKS: tuple[tuple[str, Callable[[ModuleType], None]], ...] = (
    ("verl.utils.distributed", gloo_process_group),
    ("verl.workers.engine.fsdp.transformer_impl", training_engines),
    ("verl.workers.rollout.base", weight_transport),
    ("verl.workers.rollout.sglang_rollout.async_sglang_server", engine_processes),
    ("verl.checkpoint_engine", checkpoint_engine),
    ("verl.utils.device", fork_server.fork_workers),
    ("verl.utils.model", value_head_attention),
    ("verl.trainer.ppo.v1.replay_buffer", speed.replay_buffer_polling),
    ("verl.experimental.agent_loop.agent_loop", speed.loop_construction),
    ("verl.utils.transferqueue_utils", speed.fetched_tensors),
)
"""Modules, each with the function that patches it right after its import."""
