"""Checks of the GPUs and how they are divided, or of the cores of a CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agent_rl.cpu.profile import profile_of
from agent_rl.doctor.case import Case
from agent_rl.launch.outside import require_home, temporary_files
from agent_rl.preflight.check import Finding, Needs, check, ok, problem, skipped, warning
from agent_rl.preflight.values import PARALLEL

BUSY = 0.05
"""Share of a GPU's memory in use above which the GPU counts as busy."""


@check("machine", needs=Needs.MACHINE)
def accelerator(case: Case) -> Finding:
    """There is an accelerator, or the CPU was chosen, as the configuration says."""
    device, visible = case.get("trainer.device"), case.environ.get("CUDA_VISIBLE_DEVICES")
    if case.on_cpu and device not in (None, "cpu"):
        remedy = "Let the recipe's config.yaml search pkg://agent_rl.config, or set trainer.device=cpu"
        return problem(f"VERL_PLATFORM=cpu, but trainer.device is {device}", remedy)
    if case.on_cpu:
        unused = f"; {_listed(case)} not used" if case.gpus else ""
        return ok(f"none: the CPU was chosen (VERL_PLATFORM=cpu){unused}")
    if case.gpus:
        return ok(f"{_listed(case)}, driver {case.gpus[0].driver}")
    if case.machine.device_file and visible is not None:
        return problem(f"CUDA_VISIBLE_DEVICES={visible!r} leaves no GPU", "Unset it, or name GPUs that are there")
    if case.machine.device_file:
        remedy = "Fix the driver, unless it is no NVIDIA device: then the GPU checks do not apply"
        return warning("there is a device file, but nvidia-smi does not list a GPU", remedy)
    if case.joins:
        return skipped("none here; the Ray cluster's machines are not checked")
    return problem("there is none on this machine", "Set VERL_PLATFORM=cpu to use the CPU")


@check("machine", "GPU memory in use", Needs.MACHINE)
def gpus_in_use(case: Case) -> Finding | None:
    """No other process uses the GPUs' memory."""
    busy = [gpu for gpu in case.gpus if gpu.memory_mib and gpu.used_mib > BUSY * gpu.memory_mib]
    if not busy or case.on_cpu:
        return None
    used = [f"GPU {gpu.index}: {gpu.used_mib / 1024:.1f} of {gpu.memory_mib / 1024:.0f} GiB" for gpu in busy]
    remedy = "End what runs there (nvidia-smi lists it), or set CUDA_VISIBLE_DEVICES to free GPUs"
    return warning(f"others use {', '.join(used)}", remedy)


@check("machine", "GPUs per node")
def gpus_per_node(case: Case) -> Finding:
    """The machine has as many GPUs as the recipe wants on each node."""
    wanted, here = case.gpus_wanted, len(case.gpus)
    if case.on_cpu:
        logical = case.number("ray_kwargs.ray_init.num_gpus", wanted)
        if wanted > logical and not case.joins:
            text = f"{wanted} wanted, Ray gets {logical}: the run would wait forever"
            return problem(text, f"Set ray_kwargs.ray_init.num_gpus={wanted}")
        return ok(f"{wanted}, a logical resource on a CPU")
    if case.joins or not here:
        return skipped(f"{wanted}; the run's GPUs cannot be counted here")
    if wanted > here:
        remedy = f"Set trainer.n_gpus_per_node to {here} or less (with engines on GPUs of their own: half)"
        return problem(f"{wanted} wanted, {here} here: the run would wait forever", remedy)
    return ok(f"{wanted} of the {here} here" if wanted < here else f"{wanted}, all that are here")


@check("machine")
def tensor_parallel(case: Case) -> Finding:
    """Tensor parallelism divides the model's heads."""
    rollout = "actor_rollout_ref.rollout"
    key, heads = f"{rollout}.tensor_model_parallel_size", case.model.config.get("num_attention_heads")
    parallel, world = case.number(key, 1), case.engine_world
    group = math.prod(case.number(f"{rollout}.{size}", 1) for size in PARALLEL)
    if heads and heads % parallel:
        text = f"{parallel} does not divide the model's {heads} attention heads"
        return problem(text, f"Set {key} to a divisor of {heads}")
    engines = world // group
    return ok(f"{parallel}: {engines} engine{'s' if engines > 1 else ''} on {world} GPU(s)")


@check("machine", "folders", Needs.MACHINE)
def folders(case: Case) -> None:
    """Ray has room for the names of its sockets, and files can be kept in the home directory, or elsewhere."""
    temporary_files(case.environ)
    require_home(case.environ)


@check("machine", "CPU cores", Needs.MACHINE)
def cores(case: Case) -> Iterator[Finding]:
    """A run on a CPU has at least two cores, and as many threads as its model is worth."""
    count, threads = case.machine.cores, case.environ.get("OMP_NUM_THREADS")
    if case.on_cpu:
        model, alone = case.model.folder or case.model.name, case.get("trainer.v1.trainer_mode", "sync") == "sync"
        profile = profile_of(model, alone, count, processes=case.number("trainer.n_gpus_per_node", 1))
        if threads not in (None, "", str(profile.threads)):
            text = f"{threads}: processes that share {count} cores were measured up to 15 times slower than with 1"
            yield warning(text, f"Unset it; agent_rl sets {profile.threads}", "OMP_NUM_THREADS")
        yield ok(f"{profile.dtype}, {profile.threads} thread(s) in each process: {profile.reason}", "CPU profile")
    if case.on_cpu and count < 2:
        yield warning(f"{count}: the trainer and the engine take turns", "Use a machine with 2 or more")
    else:
        yield ok(str(count))


def _listed(case: Case) -> str:
    first = case.gpus[0]
    more = "" if all(gpu.name == first.name for gpu in case.gpus) else " and others"
    return f"{len(case.gpus)} x {first.name}{more}, {first.memory_mib / 1024:.0f} GiB each"
