"""A verl checkpoint engine that sends weights through shared memory to standalone rollout servers on a CPU.

verl's engines (nccl, nixl, ...) need a device. This engine takes the name `nccl` when the CPU is chosen, as verl's
engine for Ascend does, so that a configuration for GPUs does not have to change. The engine works on one machine only,
because the servers read the files that the trainer's first rank writes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from agent_rl.cpu.switch import WEIGHTS
from agent_rl.errors import ConfigError
from agent_rl.settings.old_keys import RUN

SHARED_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
POLL_S = 0.02
WEIGHTS_FILE = "model.pt"
"""Name of a file of `torch.save`: safetensors 0.8.0 never frees two objects for each tensor that it has read."""


@CheckpointEngineRegistry.register("nccl")
class SharedMemoryCheckpointEngine(CheckpointEngine):
    """Checkpoint engine that writes all weights of an update to one file.

    Args:
        bucket_size: unused; verl passes it to every engine.
        is_master: whether this is the trainer's first rank, which writes the weights.
    """

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._is_master = is_master
        self._folder = ""

    def prepare(self) -> dict[str, Any]:
        """Return this update's folder, which the writing rank creates, and the name of this machine."""
        if self._is_master:
            self._folder = weights_folder()
        return {"folder": self._folder, "machine": os.uname().nodename}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict[str, Any]]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Return each rank's argument for `init_process_group`: the folder that the writing rank created.

        Raises:
            ConfigError: the ranks are on several machines.
        """
        machines = sorted({each["machine"] for each in metadata})
        if len(machines) > 1:
            raise ConfigError(
                "actor_rollout_ref.rollout.nnodes",
                f"on a CPU, trainer and rollout must share a machine, but they run on {', '.join(machines)}",
                "Use one node, or trainer.v1.trainer_mode=sync",
            )
        folder = metadata[0]["folder"]
        return {"folder": [folder] * actor_wg_world_size}, {"folder": [folder] * rollout_world_size}

    def init_process_group(self, folder: str) -> None:  # type: ignore[override]
        """Store the name of the folder for the update's weights."""
        self._folder = folder

    def finalize(self) -> None:
        """Remove the folder."""
        if self._is_master:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def send_weights(
        self, weights: Generator[tuple[str, torch.Tensor], None, None], global_steps: int | None = None
    ) -> None:
        """Write the weights on the first rank; every rank must call this method, because gathering needs all ranks."""
        tensors = {name: full_tensor(tensor) for name, tensor in weights}
        if self._is_master:
            torch.save(tensors, f"{self._folder}/partial")
            os.rename(f"{self._folder}/partial", self._file)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:  # type: ignore[override]
        """Wait for the file with the weights, and yield the file's tensors."""
        while not os.path.exists(self._file):  # noqa: ASYNC110, ASYNC240 - another process writes the file to memory
            await asyncio.sleep(POLL_S)
        for name, tensor in torch.load(self._file, map_location="cpu", weights_only=True).items():
            yield name, tensor

    @property
    def _file(self) -> str:
        return f"{self._folder}/{WEIGHTS_FILE}"


def weights_folder() -> str:
    """Create a folder for an update's weights; the launcher removes the folder if this process is killed."""
    return tempfile.mkdtemp(prefix=f"{WEIGHTS}{os.environ.get(RUN, '')}_", dir=SHARED_MEMORY)


def full_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return a whole, contiguous copy of a tensor, because `torch.save` writes all memory that a view refers to."""
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.detach().clone().contiguous()
