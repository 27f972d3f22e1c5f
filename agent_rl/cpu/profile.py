"""Chooses the number of threads and the dtype for a run on a CPU, based on its model's size and the CPU's instructions.

A model of some 100,000 parameters is fastest in float32 with one thread for each process, because generating one token
for each request of a batch is too little work to divide. An update reads whole sequences, and in synchronous training
nothing else runs at the same time, so two threads save a fifth of its time. A model of realistic size spends most of
its time on large matrix products. Engine and trainer take turns, so each gets all cores; CPUs that multiply bfloat16 in
hardware do so about four times as fast as float32 (measured with avx512_bf16 for 1024x576x1536: 453 against 100 GFLOPS
on one core, 694 against 172 on two). The trainer's weights, accumulated gradients and optimizer stay float32.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent_rl.cpu.switch import is_users_own

LARGE = 64 << 20
"""A model whose weights have at least this many bytes benefits from several threads."""
BFLOAT16 = ("amx_bf16", "avx512_bf16")
"""CPU instructions that multiply bfloat16, by their names in /proc/cpuinfo."""
THREADS = "OMP_NUM_THREADS"
TRAINING_THREADS = "AGENT_RL_TRAINING_THREADS"
"""Environment variable with the number of threads in a training process, set if other processes have fewer threads."""
SMALL_UPDATE_THREADS = 2
"""Number of threads for a small model's update if there are enough cores; the speedup was measured with this number."""
TRAINED = (
    "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype",
    "actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype",
    "critic.fsdp.mixed_precision.param_dtype",
)
ENGINE = "actor_rollout_ref.rollout.dtype"


@dataclass(frozen=True)
class CPUProfile:
    """The number of threads and the dtype for a model's computations.

    Attributes:
        threads: number of torch's threads in each process.
        training_threads: number of torch's threads in a training process.
        bfloat16: whether bfloat16 is the dtype of matrix products and of the engine's weights and KV cache.
        reason: the reason for the choice, as text.
    """

    threads: int = 1
    training_threads: int = 1
    bfloat16: bool = False
    reason: str = "a small model"

    @property
    def dtype(self) -> str:
        """The name of the dtype for matrix products."""
        return "bfloat16" if self.bfloat16 else "float32"

    def overrides(self) -> dict[str, str]:
        """Return the configuration keys whose values differ from `platform/cpu.yaml`, with the new values."""
        return {ENGINE: "bfloat16", **dict.fromkeys(TRAINED, "bf16")} if self.bfloat16 else {}

    def use_threads(self) -> None:
        """Set the number of threads for this process, unless the user has set it."""
        if not is_users_own(THREADS):
            import torch

            torch.set_num_threads(self.threads)

    @contextmanager
    def in_environment(self) -> Iterator[None]:
        """Set the number of threads for processes started in this block, unless the user has set it."""
        if is_users_own(THREADS):
            yield
            return
        previous = {name: os.environ.get(name) for name in (THREADS, TRAINING_THREADS)}
        os.environ.update({THREADS: str(self.threads), TRAINING_THREADS: str(self.training_threads)})
        try:
            yield
        finally:
            for name, value in previous.items():
                del os.environ[name]
                if value is not None:
                    os.environ[name] = value


def profile_of(
    model: str | Path,
    alone: bool = True,
    cores: int | None = None,
    flags: frozenset[str] | None = None,
    processes: int = 1,
) -> CPUProfile:
    """Return the profile for a model.

    Args:
        model: the model's folder, or its name on the Hub; a model from the Hub is assumed to be large.
        alone: whether engine and trainer take turns; otherwise each gets half of the cores.
        cores: the number of cores; None means those that this process may use.
        flags: the flags of the CPU; None means the flags of this machine's CPU.
        processes: the number of training processes.
    """
    cores = cores or len(os.sched_getaffinity(0))
    if not _is_large(str(model)):
        return CPUProfile(training_threads=min(SMALL_UPDATE_THREADS, max(1, cores // processes)) if alone else 1)
    available = processor_flags() if flags is None else flags
    instructions = next((each for each in BFLOAT16 if each in available), "")
    threads = cores if alone else max(1, cores // 2)
    return CPUProfile(
        threads=threads,
        training_threads=threads,
        bfloat16=bool(instructions),
        reason=f"a large model; the CPU has {instructions or 'no instructions for bfloat16'}",
    )


def processor_flags() -> frozenset[str]:
    """Return this CPU's flags; the set is empty if the system does not list them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return frozenset()
    line = next((each for each in text.splitlines() if each.startswith("flags")), "")
    return frozenset(line.partition(":")[2].split())


def _is_large(model: str) -> bool:
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return not model.startswith(("/", ".", "~", "outputs/")) and model.count("/") == 1
    return sum(file.stat().st_size for file in folder.glob("*.safetensors")) >= LARGE
