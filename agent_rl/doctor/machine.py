"""Checks of what the run would compute on: GPUs and how they are divided, or the cores of a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

from agent_rl.doctor.case import Case
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning
from agent_rl.launch.command import has_accelerator

__all__ = ["accelerator", "cores", "gpus_in_use", "gpus_per_node", "tensor_parallel"]

BUSY = 0.05
"""Share of a GPU's memory above which others use it."""


def accelerator(case: Case) -> Iterator[Finding]:
    """There is something to compute on, and it is what the configuration says."""
    subject = "accelerator"
    device = case.get("trainer.device")
    if case.on_cpu:
        if device not in (None, "cpu"):
            text = f"VERL_PLATFORM=cpu, but trainer.device is {device}"
            yield problem(
                subject, text, "Let the recipe's config.yaml search pkg://agent_rl.config, or set trainer.device=cpu"
            )
        else:
            unused = f"; {_listed(case)} not used" if case.gpus else ""
            yield ok(subject, f"none: the CPU was chosen (VERL_PLATFORM=cpu){unused}")
    elif case.gpus:
        yield ok(subject, f"{_listed(case)}, driver {case.gpus[0].driver}")
    elif case.environ.get("CUDA_VISIBLE_DEVICES") is not None and has_accelerator():
        hidden = case.environ["CUDA_VISIBLE_DEVICES"]
        yield problem(
            subject, f"CUDA_VISIBLE_DEVICES={hidden!r} leaves no GPU", "Unset it, or name GPUs that are there"
        )
    elif has_accelerator():
        text = "there is a device file, but nvidia-smi does not list a GPU"
        yield warning(subject, text, "Mend the driver, unless it is no NVIDIA device: then the GPU checks do not apply")
    elif case.joins:
        yield skipped(subject, "none here; the Ray cluster's machines are not looked at")
    else:
        yield problem(subject, "there is none on this machine", "Set VERL_PLATFORM=cpu to use the CPU")


def gpus_in_use(case: Case) -> Iterator[Finding]:
    """Nobody else fills the GPUs."""
    busy = [gpu for gpu in case.gpus if gpu.memory_mib and gpu.used_mib > BUSY * gpu.memory_mib]
    if busy and not case.on_cpu:
        used = ", ".join(
            f"GPU {gpu.index}: {gpu.used_mib / 1024:.1f} of {gpu.memory_mib / 1024:.0f} GiB" for gpu in busy
        )
        remedy = "End what runs there (nvidia-smi lists it), or set CUDA_VISIBLE_DEVICES to free GPUs"
        yield warning("GPU memory in use", f"others use {used}", remedy)


def gpus_per_node(case: Case) -> Iterator[Finding]:
    """The machine has as many GPUs as the recipe wants of each."""
    subject, wanted = "GPUs per node", case.gpus_wanted
    if case.on_cpu:
        logical = int(case.get("ray_kwargs.ray_init.num_gpus", wanted))
        if wanted > logical and not case.joins:
            text = f"{wanted} wanted, Ray is told of {logical}: the run would wait for ever"
            yield problem(subject, text, f"Set ray_kwargs.ray_init.num_gpus={wanted}")
        else:
            yield ok(subject, f"{wanted}, a logical resource on a CPU")
    elif case.joins:
        yield skipped(subject, f"{wanted}; the Ray cluster's machines are not looked at")
    elif not case.gpus:
        yield skipped(subject, f"{wanted}; no GPU could be counted")
    elif wanted > len(case.gpus):
        text = f"{wanted} wanted, {len(case.gpus)} here: the run would wait for ever"
        remedy = f"Set trainer.n_gpus_per_node to {len(case.gpus)} or less (with engines on GPUs of their own: half)"
        yield problem(subject, text, remedy)
    elif wanted < len(case.gpus):
        yield ok(subject, f"{wanted} of the {len(case.gpus)} here")
    else:
        yield ok(subject, f"{wanted}, all that are here")


def tensor_parallel(case: Case) -> Iterator[Finding]:
    """The engine's groups of GPUs divide the run's GPUs, and the model's heads divide among them."""
    rollout = "actor_rollout_ref.rollout"
    subject, key = "tensor parallel", f"{rollout}.tensor_model_parallel_size"
    parallel = int(case.get(key, 1))
    names = ("data_parallel_size", "pipeline_model_parallel_size")
    group = parallel * int(case.get(f"{rollout}.{names[0]}", 1)) * int(case.get(f"{rollout}.{names[1]}", 1))
    heads = case.model.config.get("num_attention_heads")
    if case.engine_world % group:
        text = f"an engine needs {group} GPUs, which does not divide the {case.engine_world} that there are"
        yield problem(
            subject,
            text,
            f"Set {key} so that with {' and '.join(names)} it multiplies to a divisor of {case.engine_world}",
        )
    elif heads and heads % parallel:
        yield problem(
            subject,
            f"{parallel} does not divide the model's {heads} attention heads",
            f"Set {key} to a divisor of {heads}",
        )
    else:
        engines = case.engine_world // group
        yield ok(subject, f"{parallel}: {engines} engine{'s' if engines > 1 else ''} on {case.engine_world} GPU(s)")


def cores(case: Case) -> Iterator[Finding]:
    """A run on a CPU has cores, and its processes do not fight for them."""
    count = len(os.sched_getaffinity(0))
    if not case.on_cpu:
        yield ok("CPU cores", str(count))
        return
    threads = case.environ.get("OMP_NUM_THREADS")
    if threads not in (None, "") and threads != "1":
        text = f"{threads}: processes that share {count} cores were measured up to 15 times slower than with 1"
        yield warning("OMP_NUM_THREADS", text, "Unset it; agent_rl sets 1")
    if count < 2:
        yield warning("CPU cores", f"{count}: the trainer and the engine take turns", "Use a machine with 2 or more")
    else:
        yield ok("CPU cores", str(count))


def _listed(case: Case) -> str:
    first = case.gpus[0]
    more = "" if all(gpu.name == first.name for gpu in case.gpus) else " and others"
    return f"{len(case.gpus)} x {first.name}{more}, {first.memory_mib / 1024:.0f} GiB each"
