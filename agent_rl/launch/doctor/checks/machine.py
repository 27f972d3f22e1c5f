"""Checks a machine's GPUs, how they are divided, the threads on a CPU, and what the stack requires of a GPU node.

`STACK` lists what torch for CUDA 13, SGLang 0.5.13 and verl 0.9.1 require of a node but do not check themselves, with
the consequence and the source of each. Other requirements are calculated from the
configuration: memory, disk and `/dev/shm` (`checks.memory`), logical CPUs (`checks.ray`), versions
(`checks.installation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from agent_rl.cpu.profile import profile_of
from agent_rl.launch.doctor.case import Case
from agent_rl.launch.environment import CUDA, RUNTIME, require_home, temporary_files
from agent_rl.preflight.check import Finding, Needs, check, problem, skipped, warning

ROLLOUT = "actor_rollout_ref.rollout"
BUSY = 0.05
"""A GPU is considered busy if more than this share of its memory is in use."""


@dataclass(frozen=True)
class NodeRequirement:
    """A requirement for a GPU node.

    Attributes:
        subject: the finding's subject.
        wanted: the requirement, in words.
        otherwise: the consequence of not meeting the requirement.
        source: where the requirement is documented.
        look: returns the machine's state and whether that is enough, or None if the requirement does not apply.
        remedy: how to meet the requirement.
    """

    subject: str
    wanted: str
    otherwise: str
    source: str
    look: Callable[[Case], tuple[str, bool] | None]
    remedy: str


def _at_least(version: str, least: str) -> tuple[str, bool]:
    """Return a version, and whether it is at least `least`; text that is not a version counts as too old."""
    return version, _version(version) >= Version(least)


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def _library(case: Case, name: str) -> tuple[str, bool]:
    is_loadable = name in case.machine.libraries
    return "found" if is_loadable else "not found", is_loadable


def _torch(case: Case) -> tuple[str, bool]:
    version = case.machine.torch_cuda or ""
    return version or "torch without CUDA", version.startswith(f"{CUDA}.")


def _toolkit(case: Case) -> tuple[str, bool]:
    home, lacks = case.machine.cuda_home, ", ".join(case.machine.missing_parts)
    return f"{home or 'none'}{lacks and f' lacks {lacks}'}", bool(home) and not lacks


def _compiling(case: Case) -> tuple[str, bool] | None:
    failures = "; ".join(f"{name}: {why}" for name, why in case.machine.compiled.items() if why)
    return (failures or "works", not failures) if case.machine.compiled else None


def _head_size(case: Case) -> tuple[str, bool] | None:
    config, backend = case.model.config, str(case.get(f"{ROLLOUT}.engine_kwargs.sglang.attention_backend", ""))
    size = int(config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1))
    return (str(size), size in (64, 128, 256)) if size and backend in ("", "flashinfer") else None


def _cupy(case: Case) -> tuple[str, bool] | None:
    version = case.machine.version("cupy-cuda13x")
    result = f"cupy-cuda13x {version or 'is not installed'}", version == "14.0.1"
    return result if case.get("trainer.v1.trainer_mode") == "separate_async" else None


def _allocator(case: Case) -> tuple[str, bool]:
    settings = [case.environ.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")]
    values = ",".join(filter(None, settings))
    return values or "torch's own setting", "expandable_segments:true" not in values.lower()


STACK = (
    NodeRequirement(
        "driver",
        f"580 or newer, for CUDA {CUDA}",
        "torch finds no GPU",
        "https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html (table 2, CUDA 13.x)",
        lambda case: _at_least(min((gpu.driver for gpu in case.gpus), key=_version), "580"),
        "Install a driver of the 580 branch or newer",
    ),
    NodeRequirement(
        "torch's CUDA",
        f"{CUDA}.x",
        "the engine's kernels and torch load different runtimes",
        "sglang 0.5.13's requirements: torch==2.11.0, flashinfer_python[cu13]",
        _torch,
        "Run pip install 'agent-rl[sglang]' in a fresh environment",
    ),
    NodeRequirement(
        "compute capability",
        "8.0 or newer (Ampere)",
        "bf16 is not available, and flashinfer has no kernels",
        "https://docs.flashinfer.ai/installation.html (sm75 at least); bf16 matrix units need 8.0",
        lambda case: _at_least(min((gpu.capability for gpu in case.gpus), key=_version), "8.0"),
        "Use an A100, L40, RTX 30 or newer",
    ),
    NodeRequirement(
        "glibc",
        "2.34 or newer",
        "libraries in the wheels do not load: version `GLIBC_2.34' not found",
        "symbols in CUDA extensions (https://github.com/vllm-project/vllm/issues/41103); torch 2.11 itself needs 2.28",
        lambda case: _at_least(case.machine.glibc or "another C library", "2.34"),
        "Use a container or distribution that has it, such as Ubuntu 22.04, Debian 12 or RHEL 9",
    ),
    NodeRequirement(
        "libnuma",
        "libnuma.so.1",
        "sgl_kernel cannot be imported: could not load any common_ops library",
        "https://github.com/odysseus-dev/odysseus/pull/6257",
        lambda case: _library(case, "libnuma.so.1"),
        "Run apt-get install libnuma1 (dnf: numactl-libs)",
    ),
    NodeRequirement(
        "CUDA runtime",
        f"{RUNTIME} where the loader looks",
        "the engine's processes die when torch_memory_saver is preloaded",
        "https://github.com/sgl-project/sglang/issues/36533",
        lambda case: _library(case, RUNTIME),
        f"Run pip install nvidia-cuda-runtime=={CUDA}.*; the launcher sets LD_LIBRARY_PATH",
    ),
    NodeRequirement(
        "CUDA toolkit",
        f"nvcc, lib64/libcudart.so and headers of CUDA {CUDA}",
        "the engine exits at its first kernel, because SGLang 0.5.13 compiles some kernels with any backend",
        "sglang 0.5.13's jit_kernel (rope, silu_and_mul), with tvm_ffi; https://github.com/flashinfer-ai/flashinfer/issues/5064",
        _toolkit,
        "Install cuda-toolkit-13-0 (at least cuda-nvcc-13-0, cuda-cudart-dev-13-0 and cuda-cccl-13-0), and unset "
        "CUDA_HOME or set it to the toolkit's folder",
    ),
    NodeRequirement(
        "compiling",
        "ninja, and a compiler that builds three lines with CUDA and three with Python.h",
        "the engine exits at its first kernel, or Triton cannot build its launcher",
        "flashinfer 0.6.12 and tvm_ffi 0.1.9 build kernels this way; triton/runtime/build.py",
        _compiling,
        "Install Python's headers and a C++ compiler that this nvcc accepts (apt-get install g++ python3-dev, for this "
        "Python's version)",
    ),
    NodeRequirement(
        "head size",
        "64, 128 or 256, with flashinfer's attention",
        "the engine exits at its first batch",
        "https://docs.flashinfer.ai/api/attention.html (head_dim)",
        _head_size,
        f"Add ++{ROLLOUT}.engine_kwargs.sglang.attention_backend=triton",
    ),
    NodeRequirement(
        "cupy",
        "cupy-cuda13x 14.0.1",
        "weights cannot be sent to engines on separate GPUs",
        "verl 0.9.1's extra cupy-cu130; verl/plugin/platform/platform_cuda.py imports cupy.cuda.nccl",
        _cupy,
        "Run pip install cupy-cuda13x==14.0.1",
    ),
    NodeRequirement(
        "allocator",
        "an environment without expandable_segments",
        "torch_memory_saver rejects it, and the engine keeps its memory during the update (verl sets it itself)",
        "https://github.com/fzyzcjy/torch_memory_saver/issues/24; verl/workers/engine_workers.py",
        _allocator,
        "Unset PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF",
    ),
)
"""The requirements for every run on NVIDIA GPUs; `look` returns None if a requirement does not apply."""


@check("machine", needs=Needs.MACHINE)
def node(case: Case) -> Iterator[Finding]:
    """A node with NVIDIA GPUs meets the requirements of torch, SGLang and verl."""
    if case.on_cpu or not case.gpus:
        return
    for row in STACK:
        description, fits = row.look(case) or ("", True)
        if not fits:
            text = f"{description}, but the run needs {row.wanted}. Otherwise {row.otherwise}"
            yield problem(text, row.remedy, row.subject)


@check("machine", needs=Needs.MACHINE)
def accelerator(case: Case) -> Finding | None:
    """There is an accelerator, or the CPU was chosen and the configuration agrees."""
    device, visible = case.get("trainer.device"), case.environ.get("CUDA_VISIBLE_DEVICES")
    if case.on_cpu and device not in (None, "cpu"):
        remedy = "Add pkg://agent_rl.config to the search path in the recipe's config.yaml, or set trainer.device=cpu"
        return problem(f"VERL_PLATFORM=cpu, but trainer.device is {device}", remedy)
    if case.on_cpu or case.gpus:
        return None
    if case.machine.device_file and visible is not None:
        return problem(f"CUDA_VISIBLE_DEVICES={visible!r} leaves no GPU", "Unset the variable, or list GPUs that exist")
    if case.machine.device_file:
        remedy = "Fix the driver. If the device is not from NVIDIA, ignore this warning"
        return warning("there is a device file for a GPU, but nvidia-smi lists no GPU", remedy)
    if case.joins:
        return skipped("this machine has no GPU, and the Ray cluster's machines cannot be checked from it")
    return problem("this machine has no GPU", "Set VERL_PLATFORM=cpu to use the CPU")


@check("machine", "GPU memory in use", Needs.MACHINE)
def gpus_in_use(case: Case) -> Finding | None:
    """No other process uses the GPUs' memory."""
    busy = [gpu for gpu in case.gpus if gpu.memory_mib and gpu.used_mib > BUSY * gpu.memory_mib]
    if not busy or case.on_cpu:
        return None
    used = [f"GPU {gpu.index}: {gpu.used_mib / 1024:.1f} of {gpu.memory_mib / 1024:.0f} GiB" for gpu in busy]
    remedy = "Stop the processes that nvidia-smi lists, or set CUDA_VISIBLE_DEVICES to free GPUs"
    return warning(f"other processes use {', '.join(used)}", remedy)


@check("machine", "GPUs per node")
def gpus_per_node(case: Case) -> Finding | None:
    """The machine has the number of GPUs that the recipe needs on each node."""
    needed, here = case.gpus_wanted, len(case.gpus)
    if case.on_cpu:
        logical = case.number("ray_kwargs.ray_init.num_gpus", needed)
        if needed > logical and not case.joins:
            text = f"{needed} GPUs are needed, but Ray gets {logical}, so the run would hang"
            return problem(text, f"Set ray_kwargs.ray_init.num_gpus={needed}")
        return None
    if case.joins or not here:
        return skipped(f"the run needs {needed} GPUs, but this machine's GPUs cannot be counted")
    if needed > here:
        remedy = f"Set trainer.n_gpus_per_node to {here} or less (half of that if the engines have their own GPUs)"
        return problem(f"{needed} GPUs are needed, but this machine has {here}, so the run would hang", remedy)
    return None


@check("machine")
def tensor_parallel(case: Case) -> Finding | None:
    """The tensor-parallel size divides the number of attention heads."""
    key, heads = f"{ROLLOUT}.tensor_model_parallel_size", case.model.config.get("num_attention_heads")
    parallel = case.number(key, 1)
    if not heads or heads % parallel == 0:
        return None
    return problem(
        f"{parallel} does not divide the model's {heads} attention heads", f"Set {key} to a divisor of {heads}"
    )


@check("machine", "folders", Needs.MACHINE)
def folders(case: Case) -> None:
    """The temporary folder's path is short enough for Ray's sockets, and the home directory is writable."""
    temporary_files(case.environ)
    require_home(case.environ)


@check("machine", "CPU profile", Needs.MACHINE)
def profile(case: Case) -> Iterator[Finding]:
    """A run on a CPU uses a number of threads that suits the model."""
    if not case.on_cpu:
        return
    count, threads = case.machine.cores, case.environ.get("OMP_NUM_THREADS")
    model, alone = case.model.folder or case.model.name, case.get("trainer.v1.trainer_mode", "sync") == "sync"
    chosen = profile_of(model, alone, count, processes=case.number("trainer.n_gpus_per_node", 1))
    if threads not in (None, "", str(chosen.threads)):
        text = f"{threads}: processes that share {count} cores have run up to 15 times slower than with 1 thread"
        yield warning(text, f"Unset the variable; agent_rl sets {chosen.threads}", "OMP_NUM_THREADS")
