"""verl's FSDP training engines on a CPU, registered for the device `cpu`; verl registers them for cuda and npu only."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import torch
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.model import convert_weight_keys
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from agent_rl.cpu.profile import TRAINING_THREADS
from agent_rl.cpu.shared_memory import full_tensor

__all__ = ["CPUEngineWithLMHead", "CPUEngineWithValueHead"]


class _OnCPU:
    engine_config: Any

    def initialize(self) -> None:
        """Run verl's method with the threads of a process that trains."""
        if threads := os.environ.get(TRAINING_THREADS):
            torch.set_num_threads(int(threads))
        super().initialize()  # type: ignore[misc]

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Shard the module, without the offload that verl forces on a forward-only engine (the reference policy).

        Offloading pins host memory for a device, and there is none; the parameters are in host memory anyway.
        """
        config = self.engine_config
        self.engine_config = copy.copy(config)
        object.__setattr__(self.engine_config, "forward_only", False)  # verl's configs refuse assignment
        try:
            built: torch.nn.Module = super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config = config
        return built


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPUEngineWithLMHead(_OnCPU, FSDPEngineWithLMHead):
    """Actor and reference policy."""

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights with the LoRA adapter merged in, in their own dtype.

        verl rounds them to bf16, but on a CPU the engine computes in fp32.
        """
        with merged_lora_context(self.module, backup_adapters=True):
            params = normalize_peft_param_name(self.module.state_dict())
            for name, param in convert_weight_keys(params, self.module).items():
                yield name, full_tensor(param)


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPUEngineWithValueHead(_OnCPU, FSDPEngineWithValueHead):
    """Critic."""
