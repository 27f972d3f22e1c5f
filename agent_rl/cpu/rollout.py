"""Sends updated weights from the trainer to the SGLang server on a CPU.

verl's adapter passes the weights as GPU memory handles. On a CPU the weights are written to a file in shared
memory, and the server loads them; then the folder is removed.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Generator
from typing import Any

import torch
from verl.workers.rollout.sglang_rollout.sglang_rollout import ServerAdapter
from verl.workers.rollout.utils import ensure_async_iterator

from agent_rl.cpu.shared_memory import WEIGHTS_FILE, full_tensor, weights_folder
from agent_rl.work.memory import return_memory


class CPUServerAdapter(ServerAdapter):
    """verl's SGLang adapter, with one change: it sends weights through shared memory."""

    server_actor: Any

    async def update_weights(  # type: ignore[override]
        self,
        weights: Generator[tuple[str, torch.Tensor], None, None] | AsyncGenerator[tuple[str, torch.Tensor], None],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **kwargs: Any,
    ) -> None:
        """Load the trainer's weights into the server.

        Args:
            weights: the name and tensor of each parameter; every rank must read all of them, because gathering a
                sharded tensor is a collective operation.
            global_steps: version of the weights, which the server reports with each generation.
            wire_format: unused; the tensors are always full, because `switch.check` rejects other formats.
            kwargs: unused; verl's arguments for LoRA adapters, which are merged into the weights (see `switch.check`).

        Raises:
            RuntimeError: the server rejected the weights.
        """
        return_memory()  # of the update that has just ended
        await self._init_server_adapter()
        tensors = {name: full_tensor(tensor) async for name, tensor in ensure_async_iterator(weights)}
        if self._engine is None:
            return
        folder = weights_folder()
        try:
            torch.save(tensors, f"{folder}/{WEIGHTS_FILE}")
            result = await self._engine._make_async_request(
                "update_weights_from_disk", {"model_path": folder, "load_format": "pt"}
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if not result.get("success"):
            raise RuntimeError(f"the SGLang server rejected the updated weights: {result.get('message', result)}")
        if global_steps is not None:
            await self.server_actor.set_global_steps.remote(global_steps)
