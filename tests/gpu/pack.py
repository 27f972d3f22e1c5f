"""What a GPU machine lacks, copied out of an environment: `python pack.py HAVE SITE`, with that environment's Python.

HAVE is the machine's `pip freeze`. Copied are the distributions that `agent-rl[sglang]` requires, without those that
the machine has in a version that fits, and without what a run of tests/gpu does not import. Kernels that the engine
loads for other GPUs or other attention backends are left out, therefore `run.sh` chooses Triton's attention.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

__all__ = ["files", "on_machine", "selection"]

ROOT = "agent-rl", "sglang"
"""The distribution, and its extra."""
OF_MACHINE = ("torch", "triton")
"""What the machine must have: it is too large to carry."""
LARGE = (*OF_MACHINE, "cupy-cuda13x", "cuda-*", "nvidia-cu*", "nvidia-nccl-*", "nvidia-nv*")
"""Never carried, nor what they require."""
LEFT_OUT = frozenset(
    (
        # kernels for other GPUs and models
        "flash-attn-4", "flashinfer-cubin", "quack-kernels", "sgl-deep-gemm", "tilelang", "tokenspeed-mla",
        # kernels of the hub: attention is torch's
        "kernels",
        # images, sound and video
        "av", "timm", "torchaudio", "torchcodec",
        # other front ends, and constraints on the output
        "anthropic", "blobfile", "llguidance", "mistral-common", "modelscope", "openai-harmony", "outlines",
        "tiktoken",
        "smg-grpc-proto", "smg-grpc-servicer",
        # plots and loggers of runs
        "matplotlib", "tensorboard", "wandb",
        # consoles, profilers, Ray's dashboard
        "aiohttp-cors", "grpcio", "hf-xet", "jedi", "opencensus",
        "opentelemetry-exporter-prometheus", "opentelemetry-sdk", "py-spy", "virtualenv", "watchfiles",
        # numbers and signatures for what is left out
        "cryptography", "scipy",
    )
)  # fmt: skip
"""Distributions that no piece of the plan imports."""
TRIMMED = (
    "*/__pycache__/*", "*.pyc", "*.pyi", "*.pyx", "*.pxd", "*.pxi", "*/tests/*",
    "xgrammar/include/*", "pyarrow/include/*",
    "sgl_kernel/flash_ops*", "sgl_kernel/flashmla_ops*", "sgl_kernel/sm100/*",
    "transformers/models/*/convert_*", "transformers/models/*/modular_*",
    "transformers/models/[cdefhijknortuvxyz]*/modeling_*",
    "sglang/test/*", "sglang/multimodal_gen/*", "sglang/benchmark/*", "sglang/jit_kernel/benchmark/*", "sglang/bench_*",
    *(f"sglang/srt/models/{name}*" for name in ("bailing", "ernie4", "glm", "kimi", "longcat", "mimo", "minicpm")),
    *(f"sglang/srt/models/{name}*" for name in ("minimax", "moss", "nemotron", "phi4mm", "sarvam", "step3")),
    "ray/jars/*", "ray/rllib/*", "ray/serve/*", "ray/tune/*", "ray/data/*", "ray/train/*", "ray/llm/*",
    "ray/dashboard/client/*", "torchao/*.so", "xgrammar/lib/*", "lib/*mscclpp*", "_mscclpp*",
    "pyarrow/*flight*", "pyarrow/*s3*", "torchvision/image.so", "torchvision.libs/*",
    *(f"PIL/_{name}*" for name in ("avif", "imagingcms", "imagingft", "webp")),
    *(f"pillow.libs/lib{name}*" for name in ("avif", "freetype", "harfbuzz", "lcms", "webp")),
    "torch_memory_saver*_cu12*", "sglang/srt/grpc/_core*",
    *(f"flashinfer/data/cutlass/{name}/*" for name in ("docs", "examples", "media", "python", "test")),
    *(f"flashinfer/data/cccl/{name}/*" for name in ("benchmarks", "c", "ci", "docs", "examples", "python", "test")),
)  # fmt: skip
"""Files of a distribution that no piece needs."""

STRIPPED = ("*.so", "pyarrow/lib*.so.*", "ray/core/src/ray/*")
"""Programs and libraries; many come with the names of their functions, up to half of their size."""
LARGE_BYTES = 40_000

Requires = Callable[[str], Iterable[str]]


def on_machine(freeze: str) -> dict[str, str]:
    """Name and version of what `pip freeze` lists; lines without a version are skipped."""
    lines = (re.match(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in freeze.splitlines())
    return {canonicalize_name(line[1]): line[2] for line in lines if line}


def selection(have: Mapping[str, str], requires: Requires = lambda name: metadata.requires(name) or ()) -> list[str]:
    """The distributions to carry, sorted.

    Raises:
        SystemExit: where the machine lacks what is too large to carry.
    """
    wanted: dict[str, list[Requirement]] = {}
    extras: dict[str, set[str]] = {}
    todo = [Requirement(f"{ROOT[0]}[{ROOT[1]}]")]
    while todo:
        each = todo.pop()
        name = canonicalize_name(each.name)
        if name in LEFT_OUT:
            continue
        wanted.setdefault(name, []).append(each)
        asked = {"", *each.extras}
        if asked <= extras.get(name, set()) or _is(name, LARGE):
            continue
        extras[name] = extras.get(name, set()) | asked
        parts = (Requirement(line) for line in _installed(name, requires))
        todo += [part for part in parts if not part.marker or any(part.marker.evaluate({"extra": x}) for x in asked)]
    lacking = [name for name in wanted if not _fits(have.get(name), wanted[name])]
    if wrong := [str(each) for name in OF_MACHINE if name in lacking for each in wanted[name]]:
        raise SystemExit(f"the machine must have {' and '.join(wrong)}, which is too large to carry")
    return sorted(name for name in lacking if not _is(name, LARGE))


def files(names: Iterable[str], trimmed: tuple[str, ...] = TRIMMED) -> list[str]:
    """The files of these distributions to carry, relative to the site."""
    found = (file for name in names for file in metadata.files(name) or ())
    kept = (str(file) for file in found if not str(file).startswith(".."))
    return sorted({file for file in kept if not _is(file, trimmed)})


def main(have: Path, site: Path) -> None:
    """Copy, and print what was copied."""
    names = [name for name in selection(on_machine(have.read_text())) if name != ROOT[0]]
    total = 0
    for name in names:
        for file in files([name]):
            source = Path(str(metadata.distribution(name).locate_file(file)))
            if source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, site / file)
                if _is(file, STRIPPED) and source.stat().st_size > LARGE_BYTES:
                    subprocess.run(["strip", "--strip-unneeded", site / file], check=True)
                total += (site / file).stat().st_size
    (site / "python-version").write_text("{}.{}\n".format(*sys.version_info))
    print(f"{len(names)} distributions, {total / 1e6:.0f} MB: {', '.join(names)}")


def _installed(name: str, requires: Requires) -> Iterable[str]:
    try:
        return requires(name)
    except metadata.PackageNotFoundError:
        return ()


def _is(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _fits(version: str | None, wanted: Iterable[Requirement]) -> bool:
    try:
        public = Version(version or "").public  # 2.11.0+cu130 is 2.11.0
    except InvalidVersion:
        return False
    return all(each.specifier.contains(public, prereleases=True) for each in wanted)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
