"""The CPU as a verl platform, registered under `cpu` and chosen by `VERL_PLATFORM=cpu`.

Functions that have no meaning on a CPU (memory pools, profilers, visible devices) return zeros or do nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

from agent_rl.cpu.engine_forks import ENGINE


def _always(value: Any) -> Any:
    """Return a method that returns a constant, regardless of its arguments."""
    return lambda *args, **kwargs: value


_nothing = _always(None)


def _memory(device: Any = None) -> tuple[int, int]:
    """Return the free and the total memory in bytes."""
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _device_module() -> ModuleType:
    """Return `torch.cpu` with the functions that verl expects from a device module."""
    module = ModuleType("agent_rl.cpu.platform.torch_cpu")
    nothing = ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_per_process_memory_fraction", "set_device")
    counted = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    module.__dict__.update(
        {name: getattr(torch.cpu, name) for name in torch.cpu.__all__}
        | dict.fromkeys(nothing, _nothing)
        | dict.fromkeys(counted, _always(0))
        | {
            "mem_get_info": _memory,
            "get_rng_state": lambda device=None: torch.get_rng_state(),
            "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
            "get_device_name": lambda device=None: "cpu",
            "manual_seed": torch.manual_seed,
            "manual_seed_all": torch.manual_seed,
        }
    )
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One CPU device; Ray schedules it as a logical resource named GPU, because verl's resource pools request GPUs."""

    device_name = vendor_name = "cpu"
    device_module = _device_module()
    is_available = _always(True)
    is_platform_available = _always(False)  # not auto-detected, so that no GPU machine silently uses the CPU
    current_device = _always("cpu")  # not 0, because verl passes the value to `Tensor.to`, where 0 means a GPU
    device_count = _always(1)
    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CPU_VISIBLE_DEVICES")
    nvtx_range = _always(nullcontext())
    ray_resource_name = _always("GPU")
    ray_noset_envvars = _always([])
    rollout_env_vars = _always({ENGINE: "1"})
    is_ipc_supported = _always(False)
