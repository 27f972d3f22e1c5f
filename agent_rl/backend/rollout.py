"""The trainer's side of the SGLang engine on a CPU: how updated weights reach the server.

verl's adapter hands the weights over as GPU memory handles. On a CPU they are written as safetensors into shared
memory and the server loads them from there, through the same loader as at its start; the folder is removed at once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from verl.workers.rollout.sglang_rollout.sglang_rollout import ServerAdapter

from agent_rl.errors import ConfigError

__all__ = ["CPUServerAdapter"]

SHARED_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class CPUServerAdapter(ServerAdapter):
    """verl's SGLang adapter with the weight transport replaced."""

    async def update_weights(
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **kwargs: Any,
    ) -> None:
        """Load the trainer's weights into the server.

        Args:
            weights: pairs of parameter name and tensor; consumed by every rank, since gathering a sharded tensor is
                collective.
            global_steps: version of the weights, which the server reports with each generation.
            wire_format: only full tensors are supported.
            kwargs: what verl passes for adapters; a LoRA adapter is not supported.

        Raises:
            ConfigError: for a delta checkpoint engine or a LoRA adapter that is served apart from the base model.
            RuntimeError: when the server refuses the weights.
        """
        if wire_format != "named_tensors":
            raise ConfigError(
                "actor_rollout_ref.rollout.checkpoint_engine.backend",
                f"wire format {wire_format!r} is not supported on a CPU",
                "Use the backend 'naive'",
            )
        if kwargs.get("peft_config") and kwargs.get("base_sync_done"):
            raise ConfigError(
                "actor_rollout_ref.model.lora.merge",
                "LoRA adapters cannot be served apart from the base model on a CPU",
                "Set it to True",
            )
        await self._init_server_adapter()
        tensors = {name: _full(tensor) for name, tensor in weights}
        if self._engine is None:
            return
        folder = tempfile.mkdtemp(prefix="agent_rl_weights_", dir=SHARED_MEMORY)
        try:
            save_file(tensors, f"{folder}/model.safetensors")
            result = await self._engine._make_async_request(
                "update_weights_from_disk", {"model_path": folder, "load_format": "safetensors"}
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not result.get("success"):
            raise RuntimeError(f"the SGLang server refused the updated weights: {result.get('message', result)}")
        if global_steps is not None:
            await self.server_actor.set_global_steps.remote(global_steps)


def _full(tensor: torch.Tensor) -> torch.Tensor:
    """A whole, contiguous tensor with memory of its own: safetensors refuses shared memory (tied embeddings)."""
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().clone().contiguous()
