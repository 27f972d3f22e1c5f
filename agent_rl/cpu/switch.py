"""The CPU switch: `VERL_PLATFORM=cpu` turns a recipe for GPUs into one for a CPU.

verl reads the variable itself to choose its platform. If the variable is `cpu`, the plugin calls `activate` in every
process that imports verl, which sets threads and environment variables for this process and its children. The engine
flags and dtypes are in the hydra group `platform=cpu` (agent_rl/config/platform/cpu.yaml), which the launcher adds.

Stand-ins for packages that are not installed are on the path of child processes only, because transformers decides
whether torchvision exists when it is first imported, and verl has already imported it in this process. verl imports
SGLang only in Ray workers, which are child processes.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError

STAND_INS_DIR = Path(__file__).parent / "stand_ins"

ENVIRONMENT = {
    # With torch's default number of threads, processes that shared few cores were up to 15 times slower.
    "OMP_NUM_THREADS": "1",
    # A training step takes a fifth less time when malloc keeps the memory of a micro-batch for the next one.
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "SGLANG_USE_CPU_ENGINE": "1",
    # Lets the engine run on every core; SGLang otherwise looks for NUMA nodes, which a container may not show.
    "SGLANG_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
    # Compiling needs a triton backend, which is missing. SGLang reads this variable at import.
    "TORCHDYNAMO_DISABLE": "1",
    # The CPU platform tells verl that this variable lists each worker's visible devices.
    "CPU_VISIBLE_DEVICES": "0",
    "TOKENIZERS_PARALLELISM": "false",
    # TransferQueue otherwise runs each of its many small operations on as many threads as there are cores.
    "TQ_NUM_THREADS": "1",
    # verl's other way to send a trajectory to a reward worker, torch.save, takes several times as long.
    "VERL_DATAPROTO_SERIALIZATION_METHOD": "numpy",
    # Otherwise Ray starts an idle process for each logical core.
    "RAY_prestart_worker_first_driver": "0",
    # Otherwise Ray's server records up to 100,000 calls for `ray list tasks`, and grows by about 100 MiB.
    "RAY_task_events_report_interval_ms": "0",
    # Otherwise Ray warns at each start that it will one day stop hiding accelerators from actors that need none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Default values; a variable that the user has set keeps its value."""
NO_GPUS = {"CUDA_VISIBLE_DEVICES": ",".join(["-1"] * 128)}
"""Hides the machine's GPUs, which SGLang would otherwise use. Ray gives a worker one entry per reserved logical GPU,
and refuses to start if there are fewer entries than logical GPUs."""
WEIGHTS = "agent_rl_weights_"
"""Prefix of the shared-memory folders that contain an update's weights; the run's mark follows the prefix."""
_set_here: set[str] = set()
"""Variables that `activate` has set in this process."""


def is_selected() -> bool:
    """Whether the user chose the CPU platform."""
    return os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu"


def is_users_own(name: str) -> bool:
    """Whether a variable was set before `activate` ran."""
    return name in os.environ and name not in _set_here


@functools.cache
def stand_ins() -> list[str]:
    """Return the folders of the stand-ins for packages that are not installed."""
    real = [path for path in sys.path if not _is_stand_in(path)]
    specs = {folder: PathFinder.find_spec(folder.name, real) for folder in sorted(STAND_INS_DIR.glob("[!_]*"))}
    return [str(folder) for folder, spec in specs.items() if spec is None or spec.origin is None]


def _is_stand_in(path: str) -> bool:
    return Path(path).is_relative_to(STAND_INS_DIR)


def child_environment() -> dict[str, str]:
    """Return the variables that a child process needs before its imports; the user's values stay unchanged."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and not _is_stand_in(path)]
    chosen = {name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()}
    return {**chosen, **NO_GPUS, "PYTHONPATH": os.pathsep.join([*paths, *stand_ins()])}


def activate() -> None:
    """Prepare this process, and through the environment its children, for verl and SGLang on a CPU. Idempotent."""
    _set_here.update(ENVIRONMENT.keys() - os.environ.keys())
    os.environ.update(child_environment())
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"] or ENVIRONMENT["OMP_NUM_THREADS"]))  # empty means unset


def check(config: Any) -> None:
    """Reject a configuration that cannot run on a CPU, before Ray starts.

    Args:
        config: verl's whole configuration.

    Raises:
        ConfigError: a reward model's engine is not SGLang, an engine has several ranks, a LoRA adapter is not merged,
            or a checkpoint engine needs a device.
    """
    rollout, model = config.actor_rollout_ref.rollout, config.actor_rollout_ref.model
    served = config.reward.reward_model
    if served.enable and served.rollout.name != "sglang":
        raise ConfigError(
            "reward.reward_model.rollout.name",
            f"{served.rollout.name!r} needs a GPU",
            "Set it to sglang, or run without VERL_PLATFORM=cpu",
        )
    engines = {"actor_rollout_ref": rollout, **({"reward.reward_model": served.rollout} if served.enable else {})}
    for section, engine in engines.items():
        if engine.tensor_model_parallel_size * engine.data_parallel_size > 1:
            raise ConfigError(
                f"{section}.rollout.tensor_model_parallel_size",
                "an engine on a CPU can have only one rank",
                "Set it and data_parallel_size to 1",
            )
    if max(model.lora_rank, model.lora.rank) > 0 and not model.lora.merge:
        raise ConfigError(
            "actor_rollout_ref.model.lora.merge",
            "SGLang keeps LoRA adapters in pinned memory, which needs a GPU",
            "Set it to true, so that the engine gets the merged weights",
        )
    backend = rollout.checkpoint_engine.backend
    if backend not in ("naive", "nccl"):
        raise ConfigError(
            "actor_rollout_ref.rollout.checkpoint_engine.backend",
            f"{backend!r} needs a GPU",
            "Set it to nccl, which agent_rl replaces with shared memory on a CPU",
        )
