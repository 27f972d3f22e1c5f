"""Checks whether memory and disk are large enough for the number of parameters. The checks are estimates, and each
finding lists its assumptions.

docs/reference/gpu_node.md lists the formulas, and compares them with verl's and SGLang's output. The engine takes the
share `gpu_memory_utilization` of the memory that is free when it starts. The reference policy is in the host's memory.
A LoRA adapter is not counted; a critic counts as a second model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent_rl.launch.doctor.case import Case
from agent_rl.launch.doctor.checks.data import total_steps
from agent_rl.preflight.check import Finding, Needs, Status, check, problem, skipped, warning

GIB = 1 << 30
STATE = 4
"""Number of values stored per trained parameter: the parameter, its gradient and Adam's two moments."""
CHECKPOINT_BYTES = 12
"""Bytes per trained parameter: the parameter and Adam's two moments, fp32."""
CPU_BASE = 6 * GIB
"""Bytes used by the processes of a run on a CPU, measured with a tiny model."""
PROCESS = 2 * GIB
"""Bytes of host memory used by each GPU's trainer and engine processes; this number is a guess."""
CONTEXTS = 1.5 * GIB
"""Bytes on each GPU for the CUDA contexts of the trainer and the engine, and for NCCL."""
GRAPHS = 1.5 * GIB
"""Bytes that the engine's CUDA graphs occupy, even during updates; this number is a guess."""
TIGHT = 0.9
"""An estimate above this share of the available memory is reported as tight."""
OWN = "actor_rollout_ref"


@dataclass(frozen=True)
class GpuNeed:
    """The estimated bytes on one GPU."""

    states: float
    """Weights, gradients and moments of the policy, and of the critic if there is one."""
    activations: float
    logits: float
    vocabulary: float
    """The weights and gradients of the vocabulary matrix, which every GPU gathers."""
    graphs: float
    resting: float
    """The training states that stay on the GPU while the engine generates: all but gradients and offloaded states."""
    pool: float
    """The engine's memory pool: weights and KV cache."""
    engine_weights: float
    kv_per_token: float

    @property
    def update(self) -> float:
        """The total while training, when the engine has released its memory."""
        return self.states + self.activations + self.logits + self.vocabulary + self.graphs + CONTEXTS

    @property
    def rollout(self) -> float:
        """The total while the engine generates."""
        return self.resting + self.pool + self.graphs + CONTEXTS


def gpu_need(case: Case, card: float) -> GpuNeed:
    """Estimate the memory needed on a GPU with `card` bytes; the model's number of parameters must be known."""
    parameters = float(case.model.parameters or 0)
    one = _number_bytes(case) * parameters / case.world_size
    lora, separate = _is_lora(case), not case.get(f"{OWN}.hybrid_engine", True)
    critic = STATE * one if _has_critic(case) else 0.0
    tokens, config = _micro_batch_tokens(case), case.model.config
    kept = 2 if case.get(f"{OWN}.model.enable_gradient_checkpointing", True) else 34
    width = config.get("hidden_size", 0) * config.get("num_hidden_layers", 0)
    vocabulary = 0 if case.get(f"{OWN}.model.use_fused_kernels") else config.get("vocab_size", 0)
    tensor_parallel = case.number(f"{OWN}.rollout.tensor_model_parallel_size", 1)
    kept_numbers = 1 if lora else 3  # how many numbers per parameter stay in memory while the engine generates
    sglang = case.get(f"{OWN}.rollout.engine_kwargs.sglang", {})
    eager = case.get(f"{OWN}.rollout.enforce_eager") or sglang.get("disable_cuda_graph")
    resting = 0.0 if separate else one * (kept_numbers - min(_offloaded(case), kept_numbers)) + critic
    share = float(case.get(f"{OWN}.rollout.gpu_memory_utilization", 0.5))
    return GpuNeed(
        states=(one if lora else STATE * one) + critic,
        activations=tokens * width * kept,
        logits=4.0 * tokens * vocabulary * 2,
        vocabulary=4.0 * config.get("vocab_size", 0) * config.get("hidden_size", 0),
        graphs=0 if separate or eager else GRAPHS,
        resting=resting,
        pool=share * (card - CONTEXTS - (0 if separate else one)),
        engine_weights=parameters * 2 / tensor_parallel,
        kv_per_token=(case.model.kv_values_per_token or 0) * 2 / tensor_parallel,
    )


@check("machine", "GPU memory")
def gpu(case: Case) -> Iterator[Finding]:
    """The training state fits on the GPUs, and so does the engine with a KV cache for at least one trajectory."""
    if case.on_cpu:
        return
    if not case.model.parameters:
        yield skipped(f"the number of parameters of {case.model.name} is unknown on this machine")
    elif not case.gpus:
        yield skipped(f"this machine has no GPU, so the memory for {_billions(case)} parameters cannot be checked")
    else:
        total = min(each.memory_mib for each in case.gpus) * (1 << 20)
        need = gpu_need(case, total)
        yield _training(case, need, total)
        yield _generating(case, need, total)


def _training(case: Case, need: GpuNeed, total: int) -> Finding:
    detail = (
        f"{_billions(case)} parameters ({case.model.source}) over {case.world_size} GPU(s): states "
        f"{_gib(need.states)}, activations {_gib(need.activations)}, logits {_gib(need.logits)}, the vocabulary's "
        f"matrix {_gib(need.vocabulary)}, CUDA graphs {_gib(need.graphs)}"
    )
    if not case.model.config:
        detail += " (both unknown without the model's config.json)"
    remedy = "Use more GPUs, smaller micro-batches (actor.ppo_max_token_len_per_gpu), or LoRA (tuning=lora)"
    return _fits(need.update, total, detail, remedy, "memory, training")


def _generating(case: Case, need: GpuNeed, total: int) -> Finding:
    subject, key = "memory, engine", f"{OWN}.rollout.gpu_memory_utilization"
    cache = need.pool - need.engine_weights
    slots = int(max(0, cache) / need.kv_per_token) if need.kv_per_token else 0
    if cache <= 0 or (need.kv_per_token and slots < case.longest):
        text = f"a pool of {_gib(need.pool)} holds the weights ({_gib(need.engine_weights)}) and {slots:,} tokens"
        return problem(text, f"Raise {key} or {OWN}.rollout.tensor_model_parallel_size", subject)
    cached = f", cache for {slots:,} tokens or {slots // max(1, case.longest)} whole trajectories" if slots else ""
    detail = f"engine {_gib(need.pool)} (weights {_gib(need.engine_weights)}{cached}), states {_gib(need.resting)}"
    remedy = f"Lower {key}, or set {OWN}.actor.fsdp_config.optimizer_offload=True"
    return _fits(need.rollout, total, detail, remedy, "memory, generating")


@check("machine", "host memory")
def host(case: Case) -> Finding:
    """The host's memory has room for the processes, the offloaded states, and the models while they are loaded."""
    free, parameters = case.machine.memory, case.model.parameters
    if case.is_elsewhere:
        return skipped("this machine has no GPU, so the run would be on another machine")
    if parameters is None:
        return skipped(f"{_gib(free)} are available, but the number of parameters is unknown on this machine")
    need, what = _host_need_cpu(case, parameters) if case.on_cpu else _host_need_gpu(case, parameters)
    return _fits(need, free, what, "Close other programs, use a smaller model, or offload less")


def _host_need_cpu(case: Case, parameters: int) -> tuple[float, str]:
    copies = 4 * (STATE * (2 if _has_critic(case) else 1) + bool(has_reference(case)) + 1)
    what = f"{CPU_BASE / GIB:g} GiB for the processes, {copies} bytes for each of {_billions(case)} parameters"
    return CPU_BASE + parameters * copies, what


def _host_need_gpu(case: Case, parameters: int) -> tuple[float, str]:
    local = case.number("trainer.n_gpus_per_node", 1)
    numbers = _offloaded(case) + bool(has_reference(case) and not _is_lora(case))
    offloaded = numbers * _number_bytes(case) * parameters * local / case.world_size
    loading = 4.0 * parameters * (local if case.model.config.get("tie_word_embeddings", True) else 1)
    engines = 2.0 * parameters * local / case.number(f"{OWN}.rollout.tensor_model_parallel_size", 1)
    what = (
        f"{local} x {_gib(PROCESS)} for processes, offloaded {_gib(offloaded)}, loading {_gib(loading)}, "
        f"then the engines' copies {_gib(engines)}"
    )
    return local * PROCESS + offloaded + max(loading, engines), what


@check("machine", "/dev/shm", Needs.MACHINE)
def shared_memory(case: Case) -> Finding | None:
    """`/dev/shm` has room for Ray's object store; containers often have only 64 MiB."""
    free = case.machine.shared_memory
    if free is None:
        return None
    store = case.get("ray_kwargs.ray_init.object_store_memory") or min(0.3 * case.machine.memory, 200e9)
    if free < (1 << 29):
        remedy = "Start the container with --shm-size=16g (or more), or with --ipc=host"
        return problem(f"only {_gib(free)} are free, so NCCL and torch will fail, and Ray will be slow", remedy)
    if free < store:
        remedy = "Enlarge /dev/shm, or set +ray_kwargs.ray_init.object_store_memory to fewer bytes"
        return warning(f"Ray's store needs {_gib(store)}, but {_gib(free)} are free: Ray will use the disk", remedy)
    return None


@check("machine")
def disk(case: Case) -> Finding | None:
    """The disk has room for all of the run's checkpoints."""
    every, parameters = case.number("trainer.save_freq", -1), case.model.parameters
    target = case.folder / Path(str(case.get("trainer.default_local_dir", "checkpoints"))).expanduser()
    folder = next(parent for parent in (target, *target.parents) if parent.exists())
    free = case.machine.free_disk(folder)
    if every <= 0:
        return None
    if not parameters:
        return skipped(f"{case.shown(folder)} has {_gib(free)} free, but the number of parameters is unknown")
    one = parameters * CHECKPOINT_BYTES * (2.0 if _has_critic(case) else 1.0)
    steps, limit = total_steps(case), case.get("trainer.max_actor_ckpt_to_keep")
    number = min(max(1, steps // every), int(limit or sys.maxsize))
    unknown = "" if steps else ", the number of steps is not known"
    what = f"{number} checkpoint(s) of {_gib(one)} in {case.shown(folder)}{unknown}"
    remedy = "Set trainer.max_actor_ckpt_to_keep=2, raise trainer.save_freq, or move trainer.default_local_dir"
    return _fits(number * one, free, what, remedy)


def _fits(need: float, there: float, detail: str, remedy: str, subject: str = "") -> Finding:
    text = f"about {_gib(need)} of {_gib(there)}: {detail}"
    if need > there:
        return problem(text, remedy, subject)
    return warning(f"tight, {text}", remedy, subject) if need > TIGHT * there else Finding(subject, Status.OK, text)


def _is_lora(case: Case) -> bool:
    model = f"{OWN}.model"
    return max(case.number(f"{model}.lora_rank", 0), case.number(f"{model}.lora.rank", 0)) > 0


def _number_bytes(case: Case) -> int:
    return 2 if str(case.get(f"{OWN}.actor.fsdp_config.model_dtype", "fp32")) in ("bf16", "bfloat16", "fp16") else 4


def _offloaded(case: Case) -> int:
    """Return how many numbers per parameter are offloaded to the host while the engine generates."""
    fsdp = f"{OWN}.actor.fsdp_config"
    return bool(case.get(f"{fsdp}.param_offload")) + 2 * bool(case.get(f"{fsdp}.optimizer_offload"))


def _has_critic(case: Case) -> bool:
    enabled = case.get("critic.enable")
    return bool(enabled) if enabled is not None else case.get("algorithm.adv_estimator") == "gae"


def has_reference(case: Case) -> bool:
    """Whether the run has a KL term, and therefore a reference policy."""
    return bool(case.get("algorithm.use_kl_in_reward") or case.get(f"{OWN}.actor.use_kl_loss"))


def _micro_batch_tokens(case: Case) -> int:
    actor = f"{OWN}.actor"
    if case.get(f"{actor}.use_dynamic_bsz"):
        return case.number(f"{actor}.ppo_max_token_len_per_gpu", 0)
    return case.number(f"{actor}.ppo_micro_batch_size_per_gpu", 0) * case.longest


def _billions(case: Case) -> str:
    count = case.model.parameters or 0
    return f"{count / 1e9:.1f} B" if count >= 1e8 else f"{count / 1e6:.1f} M"


def _gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB / 10 else f"{count / (1 << 20):.0f} MiB"
