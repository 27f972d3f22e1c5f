"""Checks of memory and disk, from the number of parameters. They are estimates, and each says what it assumes.

With FSDP and Adam a trained parameter is four numbers (itself, its gradient, the optimizer's two moments), of 4 bytes
each unless `fsdp_config.model_dtype` says bf16, divided among all GPUs; the engine holds 2 bytes (bf16) on each of its
GPUs, divided by tensor parallelism. With LoRA the adapter is not counted; a critic counts as a second model.
Activations are not estimated, but the logits of one micro-batch are: with a big vocabulary they are the largest.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_rl.doctor.case import Case
from agent_rl.doctor.data import total_steps
from agent_rl.doctor.finding import Finding, ok, problem, skipped, warning

__all__ = ["GpuNeed", "disk", "gpu", "gpu_need", "host", "shared_memory"]

GIB = 1 << 30
STATE = 4
"""Numbers of a trained parameter: itself, its gradient and Adam's two moments."""
CHECKPOINT_BYTES = 12
"""Of a trained parameter: itself and Adam's two moments, fp32."""
CPU_BASE = 6 * GIB
"""What the processes of a run on a CPU were measured to take with a tiny model."""
PROCESS = 6 * GIB
"""Of the host, for each GPU's trainer and engine processes: CUDA libraries, pinned buffers; a guess."""
TIGHT = 0.9
"""Share of what is there above which an estimate is no assurance."""
OWN = "actor_rollout_ref"
ELSEWHERE = "not compared: there is no GPU here, so the run would be on another machine"


@dataclass(frozen=True)
class GpuNeed:
    """Bytes on one GPU."""

    training: float
    """Parameters, gradients and optimizer of the actor, of the critic, and parameters of the reference policy."""
    logits: float
    """Of one micro-batch, in fp32, with their gradient."""
    engine_weights: float
    resting: float
    """What of the training state stays on the GPU while the engine generates."""
    kv_per_token: float


def gpu_need(case: Case) -> GpuNeed:
    """The estimate for one GPU, of a model whose parameters are known."""
    parameters, shards = float(case.model.parameters or 0), case.world_size
    number, lora = _number_bytes(case), int(case.get(f"{OWN}.model.lora_rank", 0)) > 0
    actor = number * (1 if lora else STATE) * parameters / shards
    moved = min(_offloaded(case) * number * parameters / shards, actor)
    critic = STATE * number * parameters / shards if _has_critic(case) else 0.0
    reference = 0.0
    if _has_reference(case) and not lora and not case.get(f"{OWN}.ref.fsdp_config.param_offload"):
        reference = number * parameters / shards
    tensor_parallel = int(case.get(f"{OWN}.rollout.tensor_model_parallel_size", 1))
    return GpuNeed(
        training=actor + critic + reference,
        logits=_micro_batch_tokens(case) * case.model.config.get("vocab_size", 0) * 8.0,
        engine_weights=parameters * 2 / tensor_parallel,
        resting=actor - moved + critic + reference,
        kv_per_token=(case.model.kv_values_per_token or 0) * 2 / tensor_parallel,
    )


def gpu(case: Case) -> Iterator[Finding]:
    """The training state fits, and beside it the engine with a cache that is worth its name."""
    if case.on_cpu:
        return
    if not case.model.parameters:
        yield skipped("GPU memory", f"the number of parameters of {case.model.name} is not known here")
    elif not case.gpus:
        yield skipped("GPU memory", f"there is no GPU here to compare {_billions(case)} parameters with")
    else:
        need, total = gpu_need(case), min(each.memory_mib for each in case.gpus) * (1 << 20)
        yield _training(case, need, total)
        yield _generating(case, need, total)


def _training(case: Case, need: GpuNeed, total: int) -> Finding:
    detail = (
        f"{_billions(case)} parameters ({case.model.source}) with gradients and Adam over {case.world_size} GPU(s) "
        f"{_gib(need.training)}, logits of a micro-batch {_gib(need.logits)}; other activations come on top"
    )
    remedy = "Use more GPUs, smaller micro-batches (actor.ppo_max_token_len_per_gpu), or LoRA (model.lora_rank=32)"
    return _fits("memory, training", need.training + need.logits, total, detail, remedy)


def _generating(case: Case, need: GpuNeed, total: int) -> Finding:
    key = f"{OWN}.rollout.gpu_memory_utilization"
    share = float(case.get(key, 0.5))
    cache = share * total - need.engine_weights
    length = int(case.get("data.max_prompt_length", 0)) + int(case.get("data.max_response_length", 0))
    held = int(max(0, cache) / need.kv_per_token) if need.kv_per_token else 0
    if cache <= 0 or (need.kv_per_token and held < length):
        text = (
            f"{share:g} of {_gib(total)} holds the engine's weights ({_gib(need.engine_weights)}) and {held:,} tokens"
        )
        return problem("memory, engine", text, f"Raise {key} or {OWN}.rollout.tensor_model_parallel_size")
    cached = f", cache for {held:,} tokens or {held // max(1, length)} whole trajectories" if held else ""
    detail = (
        f"engine {_gib(share * total)} (weights {_gib(need.engine_weights)}{cached}), "
        f"training state {_gib(need.resting)}"
    )
    fsdp = f"{OWN}.actor.fsdp_config"
    remedy = f"Lower {key}, or set {fsdp}.param_offload=True and {fsdp}.optimizer_offload=True"
    return _fits("memory, generating", need.resting + share * total, total, detail, remedy)


def host(case: Case) -> Iterator[Finding]:
    """What is kept in the machine's own memory fits."""
    subject, free = "host memory", _available()
    parameters = case.model.parameters
    if case.is_elsewhere:
        yield skipped(subject, ELSEWHERE)
        return
    if parameters is None:
        yield skipped(subject, f"{_gib(free)} available; the number of parameters is not known here")
        return
    if case.on_cpu:
        copies = 4 * (STATE * (2 if _has_critic(case) else 1) + bool(_has_reference(case)) + 1)
        need: float = CPU_BASE + parameters * copies
        what = f"{CPU_BASE / GIB:g} GiB for the processes, {copies} bytes for each of {_billions(case)} parameters"
    else:
        local = int(case.get("trainer.n_gpus_per_node", 1))
        numbers = _offloaded(case)
        numbers += bool(_has_reference(case) and case.get(f"{OWN}.ref.fsdp_config.param_offload"))
        kept = numbers * _number_bytes(case)
        need = local * PROCESS + parameters * (4 + kept * local / case.world_size)
        what = f"{local} x {_gib(PROCESS)} for processes, one copy while loading, {kept} bytes a parameter offloaded"
    yield _fits(subject, need, free, what, "Close other programs, use a smaller model, or offload less")


def shared_memory(case: Case) -> Iterator[Finding]:
    """`/dev/shm` holds Ray's object store; containers often have 64 MiB."""
    path = Path("/dev/shm")
    if not path.is_dir():
        return
    usage = shutil.disk_usage(path)
    store = case.get("ray_kwargs.ray_init.object_store_memory") or min(0.3 * _available(), 200e9)
    if usage.free < (1 << 29):
        remedy = "Start the container with --shm-size=16g (or more), or with --ipc=host"
        yield problem("/dev/shm", f"{_gib(usage.free)} free: NCCL and torch fail, Ray is slow", remedy)
    elif usage.free < store:
        text = f"{_gib(usage.free)} free, Ray's object store takes {_gib(store)}: Ray falls back to the disk"
        yield warning("/dev/shm", text, "Enlarge it, or set +ray_kwargs.ray_init.object_store_memory (bytes) below it")
    else:
        yield ok("/dev/shm", f"{_gib(usage.free)} free, Ray's object store takes at most {_gib(store)}")


def disk(case: Case) -> Iterator[Finding]:
    """The checkpoints of the whole run fit."""
    subject, every = "disk", int(case.get("trainer.save_freq", -1))
    folder = _existing(case.folder / Path(str(case.get("trainer.default_local_dir", "checkpoints"))).expanduser())
    free = shutil.disk_usage(folder).free
    if every <= 0:
        yield ok(subject, f"none are written (trainer.save_freq={every}); {_gib(free)} free in {case.shown(folder)}")
        return
    if not case.model.parameters:
        yield skipped(subject, f"{_gib(free)} free in {case.shown(folder)}; the number of parameters is not known here")
        return
    one = case.model.parameters * CHECKPOINT_BYTES * (2.0 if _has_critic(case) else 1.0)
    steps = total_steps(case)
    kept = case.get("trainer.max_actor_ckpt_to_keep")
    number = max(1, steps // every) if steps else 1
    number = min(number, int(kept)) if kept else number
    what = f"{number} checkpoint(s) of {_gib(one)} in {case.shown(folder)}" + (
        "" if steps else ", the number of steps is not known"
    )
    remedy = (
        "Set trainer.max_actor_ckpt_to_keep=2, raise trainer.save_freq, or trainer.default_local_dir on another disk"
    )
    yield _fits(subject, number * one, free, what, remedy)


def _fits(subject: str, need: float, there: float, detail: str, remedy: str) -> Finding:
    text = f"about {_gib(need)} of {_gib(there)}: {detail}"
    if need > there:
        return problem(subject, text, remedy)
    return warning(subject, f"tight, {text}", remedy) if need > TIGHT * there else ok(subject, text)


def _number_bytes(case: Case) -> int:
    return 2 if str(case.get(f"{OWN}.actor.fsdp_config.model_dtype", "fp32")) in ("bf16", "bfloat16", "fp16") else 4


def _offloaded(case: Case) -> int:
    """Numbers of a parameter that wait in the host's memory while the engine generates."""
    fsdp = f"{OWN}.actor.fsdp_config"
    return bool(case.get(f"{fsdp}.param_offload")) + 2 * bool(case.get(f"{fsdp}.optimizer_offload"))


def _has_critic(case: Case) -> bool:
    enabled = case.get("critic.enable")
    return bool(enabled) if enabled is not None else case.get("algorithm.adv_estimator") == "gae"


def _has_reference(case: Case) -> bool:
    return bool(case.get("algorithm.use_kl_in_reward") or case.get(f"{OWN}.actor.use_kl_loss"))


def _micro_batch_tokens(case: Case) -> int:
    actor = f"{OWN}.actor"
    if case.get(f"{actor}.use_dynamic_bsz"):
        return int(case.get(f"{actor}.ppo_max_token_len_per_gpu", 0))
    length = int(case.get("data.max_prompt_length", 0)) + int(case.get("data.max_response_length", 0))
    return int(case.get(f"{actor}.ppo_micro_batch_size_per_gpu", 0)) * length


def _available() -> int:
    """Bytes of memory that a new process may take: the machine's, or what the container's limit leaves."""
    import psutil

    available = int(psutil.virtual_memory().available)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        cached = re.search(r"^inactive_file (\d+)", Path("/sys/fs/cgroup/memory.stat").read_text(), re.MULTILINE)
    except (OSError, ValueError):
        return available
    used -= int(cached[1]) if cached else 0
    return min(available, int(limit) - used) if limit.isdigit() else available


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _billions(case: Case) -> str:
    count = case.model.parameters or 0
    return f"{count / 1e9:.1f} B" if count >= 1e8 else f"{count / 1e6:.1f} M"


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / (1 << 20):.0f} MiB"
