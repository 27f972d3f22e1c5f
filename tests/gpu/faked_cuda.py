"""What a run on GPUs imports and gives its engines, on a machine without one: `python -m tests.gpu.faked_cuda OUT`.

The process believes in eight H100: torch.cuda answers as on a node with them, and the driver's library is a stub.
Nothing can be computed, so modules are imported and engines' arguments are made and checked, and no more. It prints one
line of JSON: of each module, and of each engine of a recipe, why it failed.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
GPUS = 8
NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""
LARGEST_BYTES = 2**28
"""Larger libraries hold kernels only."""
H100 = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, total_memory=79 * 2**30,
    warp_size=32, max_threads_per_multi_processor=2048, regs_per_multiprocessor=65_536, is_integrated=False,
    shared_memory_per_multiprocessor=233_472, shared_memory_per_block_optin=232_448, L2_cache_size=50 * 2**20,
)  # fmt: skip
MODULES = (
    "agent_rl.verl_adapter.plugin",
    *(f"agent_rl.verl_adapter.{name}" for name in ("loops", "manager", "row_data_set", "no_flash_attention")),
    "sgl_kernel.flash_attn",
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.model_executor.model_runner",
    *(f"sglang.srt.layers.attention.{name}_backend" for name in ("flashinfer", "flashattention", "triton")),
    *(f"sglang.srt.models.{name}" for name in ("qwen2", "qwen3", "qwen3_classification", "qwen2_5_vl")),
    "verl.checkpoint_engine.nccl_checkpoint_engine",
    "verl.workers.rollout.sglang_rollout.async_sglang_server",
    "verl.workers.rollout.sglang_rollout.sglang_rollout",
    "verl.workers.engine_workers",
    "verl.trainer.main_ppo",
    *(f"verl.trainer.ppo.v1.trainer_{mode}" for mode in ("sync", "colocate_async", "separate_async")),
)
CONTEXTS = {"Qwen2.5-Math": 4096, "2507": 262_144, "VL": 128_000, "Qwen3": 40_960, "": 32_768}
"""Positions of a model by a part of its name; the first that fits counts."""


NO_GPU = ("cpu", "smollm2")
"""Sizes for a CPU."""
WRONG = "no_such_argument"
"""An argument that an engine must refuse."""


class Launched(Exception):
    """An engine would start now."""


def main(out: Path) -> None:
    fake(out)
    import torch

    imported = {name: why(lambda name=name: importlib.import_module(name)) for name in MODULES}
    from sglang.srt.layers.activation import _is_cuda
    from sglang.srt.utils import is_cuda
    from verl.utils.device import get_device_name

    seen = [is_cuda(), _is_cuda, get_device_name() == "cuda", torch.version.cuda is not None]
    print("\n" + json.dumps({"modules": imported, "cuda": all(seen), "engines": dict(engines(out))}))


def fake(folder: Path) -> None:
    """Load a stub of the driver's library, which is made in this folder, and answer for torch.cuda."""
    ctypes.CDLL(str(driver(folder)), mode=ctypes.RTLD_GLOBAL)
    import torch

    answers: dict[str, Any] = {
        "is_available": True, "is_initialized": True, "device_count": GPUS, "current_device": 0, "init": None,
        "_lazy_init": None, "set_device": None, "synchronize": None, "empty_cache": None,
        "get_device_name": H100.name, "get_device_capability": (H100.major, H100.minor),
        "get_device_properties": H100, "mem_get_info": (H100.total_memory, H100.total_memory),
        "get_arch_list": ["sm_90"], "is_bf16_supported": True,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(torch.cuda, name, lambda *args, answer=answer, **options: answer)


def driver(folder: Path) -> Path:
    """A `libcuda.so.1` with every function of the driver that the engine's libraries name, each of which fails."""
    names = {b"cuInit"}
    for package in ("sgl_kernel", "torch_memory_saver"):
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        here = Path(spec.origin).parent
        for file in [*here.rglob("*.so"), *here.parent.glob(f"{package}*.so")]:
            if file.stat().st_size < LARGEST_BYTES:
                names |= set(re.findall(rb"\0(cu[A-Z]\w+)(?=\0)", file.read_bytes()))
    source = "\n".join(f"int {name.decode()}(void) {{ return {NO_DEVICE}; }}" for name in sorted(names))
    library = folder / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    return library


def engines(out: Path) -> Iterator[tuple[str, str]]:
    """Each engine of each recipe in each of its sizes for GPUs, and why its arguments are refused; empty: they fit."""
    from verl.workers.rollout.replica import RolloutMode

    from agent_rl.launch.composition import compose
    from agent_rl.settings import AgentRLSettings
    from agent_rl.verl_adapter.served_models import rollout_config

    corpus = out / "corpus.jsonl"
    corpus.write_text('{"id": "a", "contents": "Rome is in Italy."}\n')
    os.environ["SEARCH_CORPUS"] = str(corpus)
    for recipe, *given in compositions():
        config = compose(ROOT / "recipes" / recipe, given)
        policy, name = config.actor_rollout_ref, " ".join((recipe, *given))
        policy.model.path = str(model_folder(out, policy.model.path))
        yield name, why(lambda p=policy: check(p.rollout, p.model, RolloutMode.HYBRID))
        for each, model in AgentRLSettings.from_config(config).reward.models.items():
            path = model_folder(out, model.path, classifies=model.kind != "generative")
            served = {"_target_": "verl.workers.config.HFModelConfig", "path": str(path)}
            mode = RolloutMode.COLOCATED if model.visits else RolloutMode.STANDALONE
            its = rollout_config(config, model)
            yield f"{name}: {each}", why(lambda i=its, s=served, m=mode: check(i, s, m))


def compositions() -> Iterator[tuple[str, ...]]:
    """Recipe and overrides: sizes for GPUs, layouts of gpu_node.md, adapters, and an argument that does not exist."""
    from tests.recipes.test_gpu_nodes import PAGE

    yield ("quickstart",)  # it has one size
    for path in sorted((ROOT / "recipes").glob("*/size/*.yaml")):
        if path.stem not in NO_GPU:
            yield path.parents[1].name, f"size={path.stem}"
    for recipe, layouts in PAGE["LAYOUTS"].items():
        yield from ((recipe, *overrides.split()) for overrides in layouts.values())
    yield "gsm8k_calculator", "tuning=lora", "actor_rollout_ref.model.lora.merge=false"
    yield "gsm8k_calculator", f"+actor_rollout_ref.rollout.engine_kwargs.sglang.{WRONG}=1"


def check(rollout: Any, model: Any, mode: Any) -> None:
    """Let verl's server make the arguments of an engine, and SGLang check them.

    Raises:
        AssertionError: by SGLang, for arguments that do not fit.
    """
    from omegaconf import OmegaConf
    from sglang.srt.entrypoints.http_server import Engine
    from verl.workers.rollout.sglang_rollout.async_sglang_server import SGLangHttpServer

    def launch(server_args: Any, **_: Any) -> None:
        server_args.check_server_args()
        raise Launched

    Engine._launch_subprocesses = launch
    size = rollout.tensor_model_parallel_size * rollout.data_parallel_size
    visible = ",".join(map(str, range(size)))
    settings = (OmegaConf.create(OmegaConf.to_container(rollout, resolve=True)), OmegaConf.create(model))
    server = SGLangHttpServer(*settings, mode, [], 0, 0, 1, visible, 0)
    try:
        asyncio.run(server.launch_server())
    except Launched:
        return
    raise AssertionError("no engine was launched")


def model_folder(out: Path, path: str, classifies: bool = False) -> Path:
    """A model of this name as far as an engine's arguments need it: its shape and a tokenizer, and no weights."""
    from agent_rl.cpu.tiny_model import CORPUS, make_tokenizer
    from tests.recipes.test_gpu_nodes import OTHER_SHAPES, PAGE

    folder = out / "models" / path.replace("/", "--")
    if folder.exists():
        return folder
    make_tokenizer(CORPUS, folder, 512)
    size = re.search(r"[\d.]+B", path)
    shape = dict({**PAGE["SHAPES"], **OTHER_SHAPES}[size[0] if size else "1.5B"])
    family = "qwen3" if "Qwen3" in path else "qwen2"
    head = "ForSequenceClassification" if classifies else "ForCausalLM"
    shape |= {"model_type": family, "architectures": [family.capitalize() + head], "torch_dtype": "bfloat16"}
    shape["max_position_embeddings"] = next(most for part, most in CONTEXTS.items() if part in path)
    if "VL" in path:
        vision = {"model_type": "qwen2_5_vl", "hidden_size": 1280, "out_hidden_size": shape["hidden_size"]}
        shape |= {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]}
        shape["vision_config"] = vision
        shape["rope_scaling"] = {"type": "mrope", "mrope_section": [16, 24, 24]}
    (folder / "config.json").write_text(json.dumps(shape))
    return folder


def why(action: Any) -> str:
    """Why it failed; empty: it did not."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
