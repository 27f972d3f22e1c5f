"""The CPU as a verl platform, registered under `cpu` and chosen by `VERL_PLATFORM=cpu`.

What has no meaning on a CPU (memory pools, profilers, visible devices) answers with zeros or does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import psutil
import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

from agent_rl.cpu.engine_forks import ENGINE

__all__ = ["PlatformCPU"]


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Does nothing: the operation has no meaning on a CPU."""


def _zero(*args: Any, **kwargs: Any) -> int:
    """Zero, for a count that only devices have."""
    return 0


def _memory(device: Any = None) -> tuple[int, int]:
    """Free and total bytes."""
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _device_module() -> ModuleType:
    """`torch.cpu` with the functions that verl expects of a device module."""
    module = ModuleType("agent_rl.cpu.platform.torch_cpu")
    nothing = ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "set_per_process_memory_fraction", "set_device")
    counted = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    module.__dict__.update(
        {name: getattr(torch.cpu, name) for name in torch.cpu.__all__}
        | dict.fromkeys(nothing, _nothing)
        | dict.fromkeys(counted, _zero)
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
    """One CPU device; Ray schedules it as a logical resource named GPU, as verl's resource pools ask for."""

    set_device = synchronize = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = cudart = _nothing

    def __init__(self) -> None:
        self._module = _device_module()

    @property
    def device_name(self) -> str:  # noqa: D102 - the base class documents the platform's methods
        return "cpu"

    @property
    def vendor_name(self) -> str:  # noqa: D102
        return "cpu"

    @property
    def device_module(self) -> ModuleType:  # noqa: D102
        return self._module

    def is_available(self) -> bool:  # noqa: D102
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        """Never chosen by detection: a GPU machine must not fall back to the CPU by itself."""
        return False

    def current_device(self) -> str:  # type: ignore[override]
        """The device as a string: verl hands it to `Tensor.to`, where an index would mean a GPU."""
        return "cpu"

    def manual_seed(self, seed: int) -> None:  # noqa: D102
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def device_count(self) -> int:  # noqa: D102
        return 1

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: D102
        return None, None

    def communication_backend_name(self) -> str:  # noqa: D102
        return "gloo"

    def visible_devices_envvar(self) -> str:  # noqa: D102
        return "CPU_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: D102
        yield

    def ray_resource_name(self) -> str:  # noqa: D102
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:  # noqa: D102
        return []

    def rollout_env_vars(self) -> dict[str, str]:  # noqa: D102
        return {ENGINE: "1"}

    def is_ipc_supported(self) -> bool:  # noqa: D102
        return False
