"""verl's FSDP training engines, registered for the `cpu` device; verl itself registers them only for cuda and npu."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.fsdp_utils import merged_lora_context, normalize_peft_param_name
from verl.utils.model import convert_weight_keys
from verl.utils.seqlen_balancing import restore_dynamic_batch
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead

from agent_rl.cpu.profile import TRAINING_THREADS
from agent_rl.cpu.shared_memory import full_tensor
from agent_rl.cpu.speed import IMAGES


class _OnCPU:
    engine_config: Any

    def initialize(self) -> None:
        """Set the number of threads for training processes, then run verl's method."""
        if threads := os.environ.get(TRAINING_THREADS):
            torch.set_num_threads(int(threads))
        super().initialize()  # type: ignore[misc]

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Callable[..., Any], forward_only: bool = False
    ) -> dict[str, Any]:
        """Run verl's method with sequences of similar length in each micro-batch, which is padded to the longest one.

        In a batch without images, the empty image fields are removed, because verl would copy them for each
        micro-batch.

        Losses are normalized over the whole mini-batch, so the order of its sequences does not matter. The model's
        output keeps the original order.
        """
        if isinstance(images := data.get(IMAGES), NonTensorStack) and not any(images.tolist()):
            data = data.exclude(IMAGES)
        if (
            tu.get_non_tensor_data(data, "use_dynamic_bsz", True)
            or tu.get_non_tensor_data(data, "force_group_size", 1) > 1
        ):
            unchanged: dict[str, Any] = super().forward_backward_batch(data, loss_function, forward_only)  # type: ignore[misc]
            return unchanged
        order = data["input_ids"].offsets().diff().argsort(stable=True)
        ordered = tu.index_select_tensor_dict(data, order)
        result: dict[str, Any] = super().forward_backward_batch(ordered, loss_function, forward_only)  # type: ignore[misc]
        restored = {
            key: restore_dynamic_batch(value, [order.tolist()]) for key, value in result["model_output"].items()
        }
        return {**result, "model_output": restored}

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        """Shard the module, without the offload that verl forces on a forward-only engine (the reference policy).

        Offloading pins host memory for a device, but there is no device, and the parameters are in host memory anyway.
        """
        config = self.engine_config
        self.engine_config = copy.copy(config)
        object.__setattr__(self.engine_config, "forward_only", False)  # verl's configs reject assignment
        try:
            built: torch.nn.Module = super()._build_fsdp_module(module)  # type: ignore[misc]
        finally:
            self.engine_config = config
        return built


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPUEngineWithLMHead(_OnCPU, FSDPEngineWithLMHead):  # type: ignore[misc]
    """The engine for the actor and the reference policy."""

    def _merged_lora_per_tensor_param(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the weights with the LoRA adapter merged in, without changing their dtype.

        verl rounds the weights to bf16, but on a CPU the engine computes in fp32.
        """
        with merged_lora_context(self.module, backup_adapters=True):
            params = normalize_peft_param_name(self.module.state_dict())
            for name, param in convert_weight_keys(params, self.module).items():
                yield name, full_tensor(param)


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPUEngineWithValueHead(_OnCPU, FSDPEngineWithValueHead):  # type: ignore[misc]
    """The engine for the critic."""
