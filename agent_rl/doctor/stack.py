"""What torch for CUDA 13, SGLang 0.5.13 and verl 0.9.1 ask of a GPU node and do not check themselves, as one table.

Each row says what is wanted, what happens otherwise, and where that is from. The numbers of other requirements are
derived from the configuration: memory, disk and `/dev/shm` (`checks.memory`), GPUs and cores (`checks.machine`,
`checks.ray`), versions (`checks.installation`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from agent_rl.doctor.case import Case
from agent_rl.launch.gpu_environment import CUDA, RUNTIME
from agent_rl.preflight.check import Status

__all__ = ["ATTENTION", "STACK", "NodeRequirement", "at_least"]

ROLLOUT = "actor_rollout_ref.rollout"
ATTENTION = "actor_rollout_ref.model.override_config.attn_implementation"


@dataclass(frozen=True)
class NodeRequirement:
    """One requirement.

    Attributes:
        subject: of the finding.
        wanted: what the stack asks for.
        otherwise: what happens without it.
        source: where that is from.
        found: what this case has, in words.
        fits: whether that is enough.
        remedy: what to do.
        applies: whether the row concerns the run.
        severity: of a finding where it does not fit.
    """

    subject: str
    wanted: str
    otherwise: str
    source: str
    found: Callable[[Case], str]
    fits: Callable[[Case], bool]
    remedy: str
    applies: Callable[[Case], bool] = lambda case: True
    severity: Status = Status.PROBLEM


def at_least(version: str, least: str) -> bool:
    """Whether a version is another one or newer; not, where it is not a version."""
    try:
        return Version(version) >= Version(least)
    except InvalidVersion:
        return False


def _oldest_driver(case: Case) -> str:
    return min((gpu.driver for gpu in case.gpus), key=lambda driver: (at_least(driver, "0"), driver))


def _least_capability(case: Case) -> str:
    return min((gpu.capability for gpu in case.gpus), key=lambda each: float(each) if at_least(each, "0") else 0.0)


def _engine(case: Case, key: str) -> str:
    return str(case.get(f"{ROLLOUT}.engine_kwargs.sglang.{key}", ""))


def _head_size(case: Case) -> int:
    """Numbers of one attention head; 0: unknown."""
    config = case.model.config
    return int(config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1))


def _toolkit(case: Case) -> str:
    lacks = ", ".join(case.machine.missing_parts)
    return f"{case.machine.cuda_home or 'none'}{lacks and f' lacks {lacks}'}"


def _failures(case: Case) -> str:
    return "; ".join(f"with {name}: {why}" for name, why in case.machine.compiled.items() if why)


def _is_separate(case: Case) -> bool:
    return str(case.get("trainer.v1.trainer_mode", "")) == "separate_async"


def _allocator(case: Case) -> str:
    return ",".join(
        filter(None, (case.environ.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")))
    )


def _visible_memory(case: Case) -> set[int]:
    return {gpu.memory_mib for gpu in case.gpus}


STACK = (
    NodeRequirement(
        "driver",
        f"580 or newer, for CUDA {CUDA}",
        "torch finds no GPU",
        "https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html (table 2, CUDA 13.x)",
        lambda case: _oldest_driver(case),
        lambda case: at_least(_oldest_driver(case), "580"),
        "Install a driver of the 580 branch or newer",
    ),
    NodeRequirement(
        "torch's CUDA",
        f"{CUDA}.x",
        "the engine's kernels and torch load different runtimes",
        "sglang 0.5.13's requirements: torch==2.11.0, flashinfer_python[cu13]",
        lambda case: str(case.machine.torch_cuda or "torch without CUDA"),
        lambda case: str(case.machine.torch_cuda or "").split(".")[0] == str(CUDA),
        "Run pip install 'agent-rl[sglang]' in a fresh environment",
    ),
    NodeRequirement(
        "compute capability",
        "8.0 or newer (Ampere)",
        "no bf16, and flashinfer has no kernels",
        "https://docs.flashinfer.ai/installation.html (sm75 at least); bf16 matrix units begin with 8.0",
        lambda case: _least_capability(case),
        lambda case: at_least(_least_capability(case), "8.0"),
        "Use an A100, L40, RTX 30 or newer",
    ),
    NodeRequirement(
        "compute capability, FP8",
        "8.9 or newer (Ada, Hopper)",
        "weights are stored in FP8 and computed with in bf16",
        "sglang/srt/layers/quantization/fp8.py (Marlin below 8.9)",
        lambda case: f"{_least_capability(case)}, with rollout.quantization=fp8",
        lambda case: at_least(_least_capability(case), "8.9"),
        f"Remove {ROLLOUT}.quantization",
        lambda case: str(case.get(f"{ROLLOUT}.quantization", "")) == "fp8",
        Status.WARNING,
    ),
    NodeRequirement(
        "compute capability, fa3",
        "8.0 to 9.0",
        "the engine refuses to start",
        "sglang/srt/layers/attention/attention_registry.py",
        lambda case: f"{_least_capability(case)}, with attention_backend=fa3",
        lambda case: all(8.0 <= float(gpu.capability or 0) <= 9.0 for gpu in case.gpus),
        f"Remove {ROLLOUT}.engine_kwargs.sglang.attention_backend",
        lambda case: _engine(case, "attention_backend") == "fa3",
    ),
    NodeRequirement(
        "equal GPUs",
        "the same memory on each",
        "the smallest decides, or runs out of memory",
        "FSDP and tensor parallelism divide evenly",
        lambda case: " and ".join(f"{mib / 1024:.0f} GiB" for mib in sorted(_visible_memory(case))),
        lambda case: max(_visible_memory(case)) - min(_visible_memory(case)) < 1024,
        "Choose alike ones with CUDA_VISIBLE_DEVICES",
        severity=Status.WARNING,
    ),
    NodeRequirement(
        "glibc",
        "2.34 or newer",
        "libraries of the wheels do not load: version `GLIBC_2.34' not found",
        "symbols of CUDA extensions (https://github.com/vllm-project/vllm/issues/41103); torch 2.11 itself asks 2.28",
        lambda case: case.machine.glibc or "another C library",
        lambda case: at_least(case.machine.glibc, "2.34"),
        "Use a container or distribution with it: Ubuntu 22.04, Debian 12, RHEL 9",
    ),
    NodeRequirement(
        "libnuma",
        "libnuma.so.1",
        "sgl_kernel cannot be imported: could not load any common_ops library",
        "https://github.com/odysseus-dev/odysseus/pull/6257",
        lambda case: "there" if "libnuma.so.1" in case.machine.libraries else "not found",
        lambda case: "libnuma.so.1" in case.machine.libraries,
        "Run apt-get install libnuma1 (dnf: numactl-libs)",
    ),
    NodeRequirement(
        "CUDA runtime",
        f"{RUNTIME} where the loader looks",
        "the engine's processes die when torch_memory_saver is preloaded",
        "https://github.com/sgl-project/sglang/issues/36533",
        lambda case: "found" if RUNTIME in case.machine.libraries else "not found",
        lambda case: RUNTIME in case.machine.libraries,
        f"Run pip install nvidia-cuda-runtime=={CUDA}.*: the launcher sets LD_LIBRARY_PATH",
    ),
    NodeRequirement(
        "CUDA toolkit",
        f"nvcc, lib64/libcudart.so and headers of CUDA {CUDA}",
        "the engine ends at its first kernel: SGLang 0.5.13 compiles some, whatever its backends are",
        "sglang 0.5.13's jit_kernel (rope, silu_and_mul), by tvm_ffi; https://github.com/flashinfer-ai/flashinfer/issues/5064",
        _toolkit,
        lambda case: bool(case.machine.cuda_home) and not case.machine.missing_parts,
        "Install cuda-toolkit-13-0 (of it, cuda-nvcc-13-0, cuda-cudart-dev-13-0 and cuda-cccl-13-0), and unset "
        "CUDA_HOME or set it to the toolkit's folder",
    ),
    NodeRequirement(
        "compiling",
        "three lines with CUDA, and three with Python.h, compile and link",
        "the engine ends at its first kernel, or Triton cannot build its launcher",
        "flashinfer 0.6.12 and tvm_ffi 0.1.9 build kernels so; triton/runtime/build.py",
        lambda case: _failures(case) or "works",
        lambda case: not _failures(case),
        "Install Python's headers and a C++ compiler that this nvcc accepts (apt-get install g++ python3-dev, for this "
        "Python's version)",
        lambda case: bool(case.machine.compiled),
    ),
    NodeRequirement(
        "size of a head",
        "64, 128 or 256, with flashinfer's attention",
        "the engine ends at its first batch",
        "https://docs.flashinfer.ai/api/attention.html (head_dim)",
        lambda case: str(_head_size(case)),
        lambda case: _head_size(case) in (64, 128, 256),
        f"Add ++{ROLLOUT}.engine_kwargs.sglang.attention_backend=triton",
        lambda case: _head_size(case) > 0 and _engine(case, "attention_backend") in ("", "flashinfer"),
    ),
    NodeRequirement(
        "ninja",
        "ninja",
        "the engine cannot compile its kernels",
        "flashinfer's requirements; torch/utils/cpp_extension.py",
        lambda case: case.machine.ninja or "none",
        lambda case: bool(case.machine.ninja),
        "Run pip install ninja",
    ),
    NodeRequirement(
        "cupy",
        "cupy-cuda13x 14.0.1",
        "weights cannot be sent to engines on GPUs of their own",
        "verl 0.9.1's extra cupy-cu130; verl/plugin/platform/platform_cuda.py imports cupy.cuda.nccl",
        lambda case: f"cupy-cuda13x {case.machine.version('cupy-cuda13x') or 'is not installed'}",
        lambda case: case.machine.version("cupy-cuda13x") == "14.0.1",
        "Run pip install cupy-cuda13x==14.0.1",
        _is_separate,
    ),
    NodeRequirement(
        "allocator",
        "no expandable_segments in the environment",
        "torch_memory_saver refuses it, and the engine keeps its memory during the update; verl switches it itself",
        "https://github.com/fzyzcjy/torch_memory_saver/issues/24; verl/workers/engine_workers.py",
        lambda case: _allocator(case) or "torch's own setting",
        lambda case: "expandable_segments:true" not in _allocator(case).lower(),
        "Unset PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF",
    ),
    NodeRequirement(
        "open files",
        "65,536 or more",
        "Ray's processes cannot open their sockets on large runs",
        "https://docs.ray.io/en/latest/cluster/vms/user-guides/large-cluster-best-practices.html",
        lambda case: "no limit" if case.machine.open_files < 0 else f"at most {case.machine.open_files:,}",
        lambda case: case.machine.open_files < 0 or case.machine.open_files >= 65_536,
        "Raise it: ulimit -n 65536, or LimitNOFILE of the service",
        severity=Status.WARNING,
    ),
)
"""Rows that concern every run on NVIDIA GPUs, unless they say otherwise."""
