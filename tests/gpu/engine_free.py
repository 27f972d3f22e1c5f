"""The pieces that need no inference engine: `python -m tests.gpu.engine_free PIECE` prints one line of JSON.

They run on a GPU with sizes as in training, and on a CPU with small ones, whose time means nothing and is left out.
torch and transformers are enough for most.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

GIB = 1 << 30


def main(piece: str, *arguments: str) -> None:
    """Run a piece and print what it found."""
    print(json.dumps(PIECES[piece](*arguments)))


def environment() -> dict[str, Any]:
    """Versions, device, and what of the stack is installed."""
    from importlib import metadata

    names = ("torch", "transformers", "verl", "sglang", "flash-attn", "flashinfer-python", "kernels", "ray", "triton")
    installed = {}
    for name in names:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found: dict[str, Any] = {"python": platform.python_version(), "glibc": platform.libc_ver()[1], **installed}
    if "torch" in installed:
        import torch

        found["cuda"] = str(torch.version.cuda)
        if torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(0)
            found |= {"gpus": torch.cuda.device_count(), "gpu": properties.name}
            found |= {"GiB": properties.total_memory / GIB, "capability": f"{properties.major}.{properties.minor}"}
    return found


def log_probs() -> dict[str, Any]:
    """Our chunks against double precision and against torch on the whole matrix: error, seconds and memory."""
    import torch

    device, on_gpu = _device()
    tokens, vocabulary = (8192, 151_936) if on_gpu else (1024, 4096)
    torch.manual_seed(0)
    logits = torch.randn(tokens, vocabulary, device=device, dtype=torch.bfloat16).requires_grad_()
    labels = torch.randint(vocabulary, (tokens,), device=device)
    ours = _ours()
    found: dict[str, Any] = {"tokens": tokens, "vocabulary": vocabulary}
    sample = slice(0, 256)
    exact = logits[sample].detach().double().log_softmax(-1).gather(-1, labels[sample, None])[:, 0]
    found["greatest error"] = (ours(logits[sample], labels[sample]).double() - exact).abs().max().item()

    def whole(logits: Any, labels: Any) -> Any:
        return logits.float().log_softmax(-1).gather(-1, labels[:, None])[:, 0]

    for name, function in (("chunks", ours), ("whole", whole)):
        seconds, memory = _measured(lambda compute=function: torch.autograd.grad(compute(logits, labels).sum(), logits))
        found |= {f"{name} ms": seconds * 1000, f"{name} GiB": memory} if on_gpu else {}
    if found["greatest error"] > 1e-4:
        raise SystemExit(f"log-probs differ from double precision by {found['greatest error']}")
    return found


def fused_loss() -> dict[str, Any]:
    """verl's log-probs that never keep the logits, against logits and our chunks: difference, seconds, memory."""
    import torch
    from verl.utils.experimental.torch_functional import FusedLinearForPPO

    device, on_gpu = _device()
    tokens, hidden, vocabulary = (8192, 2048, 151_936) if on_gpu else (512, 64, 2048)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    states = torch.randn(1, tokens, hidden, device=device, dtype=dtype).requires_grad_()
    weight = (torch.randn(vocabulary, hidden, device=device, dtype=dtype) / hidden**0.5).requires_grad_()
    labels = torch.randint(vocabulary, (1, tokens), device=device)
    fused, ours = FusedLinearForPPO(), _ours()

    def with_verl() -> Any:
        return fused(states, weight, labels)[0]

    def with_logits() -> Any:
        return ours((states @ weight.T)[0], labels[0])[None]

    found: dict[str, Any] = {"difference": (with_verl() - with_logits()).abs().max().item()}
    for name, compute in (("fused", with_verl), ("logits", with_logits)):
        seconds, memory = _measured(lambda compute=compute: torch.autograd.grad(compute().sum(), (states, weight)))
        found |= {f"{name} ms": seconds * 1000, f"{name} GiB": memory} if on_gpu else {}
    return found


def update() -> dict[str, Any]:
    """Updates of a Qwen2 of random weights under FSDP2, as verl's actor does them with one update a batch."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import Qwen2Config, Qwen2ForCausalLM

    device, on_gpu = _device()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    dist.init_process_group("nccl" if on_gpu else "gloo", f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    rows, length = (8, 1024) if on_gpu else (4, 64)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SHAPE if on_gpu else SMALL_SHAPE, attn_implementation="sdpa")).to(device)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    mesh = dist.device_mesh.init_device_mesh("cuda" if on_gpu else "cpu", (1,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer, ours = torch.optim.AdamW(model.parameters(), lr=1e-4), _ours()
    ids = torch.randint(model.config.vocab_size, (rows, length), device=device)
    advantages = torch.randn(rows, 1, device=device)
    before = [value.to_local().clone() for value in list(model.parameters())[:2]]

    def step() -> float:
        optimizer.zero_grad()
        logits = model(ids).logits[:, :-1]
        chosen = ours(logits, ids[:, 1:])
        ratio = (chosen - chosen.detach()).exp()  # one update: the old log-probs are the update's own
        (-(ratio * advantages)).mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    norms = [step()]
    seconds, memory = _measured(lambda: norms.append(step()))
    moved = max((a - b.to_local()).abs().max().item() for a, b in zip(before, model.parameters(), strict=False))
    dist.destroy_process_group()
    if not moved or not all(norm > 0 for norm in norms):
        raise SystemExit(f"nothing was learned: gradient norms {norms}, weights moved by {moved}")
    found: dict[str, Any] = {"parameters": sum(value.numel() for value in model.parameters()), "tokens": rows * length}
    found |= {"ms": seconds * 1000, "tokens/s": rows * length / seconds, "GiB": memory} if on_gpu else {}
    return {**found, "grad norm": norms[-1]}


def estimate(out: str) -> dict[str, Any]:
    """The memory of the piece `update` beside the doctor's estimate for its model and tokens."""
    from agent_rl.launch.composition import compose
    from agent_rl.launch.doctor.case import Case
    from agent_rl.launch.doctor.checks.memory import CONTEXTS, gpu_need

    measured = json.loads((Path(out) / "update.json").read_text())["figures"]
    on_gpu = "GiB" in measured
    folder = Path(out) / "shape"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen2", **(SHAPE if on_gpu else SMALL_SHAPE)}))
    os.environ.pop("VERL_PLATFORM", None)
    tokens = f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu={measured['tokens']}"
    config = compose("gsm8k_calculator", ["size=0.5b", f"actor_rollout_ref.model.path={folder}", tokens])
    need = gpu_need(Case(environ={}, config=config), 80 * GIB)
    estimated = (need.update - CONTEXTS) / GIB
    found = {"estimated GiB": estimated, "states": need.states / GIB, "activations": need.activations / GIB}
    found |= {"logits": need.logits / GIB}
    if not on_gpu:
        return {**found, "measured GiB": "only on a GPU"}
    return {**found, "measured GiB": measured["GiB"], "measured / estimated": measured["GiB"] / estimated}


PIECES: dict[str, Callable[..., dict[str, Any]]] = {
    each.__name__: each for each in (environment, log_probs, fused_loss, update, estimate)
}
SHAPE = {
    "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "intermediate_size": 4864, "vocab_size": 151_936, "tie_word_embeddings": True,
}  # fmt: skip
"""Qwen2.5-0.5B's."""
SMALL_SHAPE = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 128, "vocab_size": 512, "tie_word_embeddings": True,
}  # fmt: skip


def _device() -> tuple[str, bool]:
    import torch

    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        torch.set_num_threads(1)
    return "cuda" if on_gpu else "cpu", on_gpu


def _ours() -> Callable[[Any, Any], Any]:
    """The package's log-probs, as the trainer gets them."""
    from agent_rl.verl_adapter.no_flash_attention import token_log_probs

    module: Any = SimpleNamespace(logprobs_from_logits_v2=lambda logits, labels: None)
    token_log_probs(module)
    function: Callable[[Any, Any], Any] = module.logprobs_from_logits_v2
    return function


def _measured(compute: Callable[[], Any], times: int = 3) -> tuple[float, float]:
    """Seconds of the fastest of a few calls after one that warms up, and the greatest GiB that one had allocated."""
    import torch

    on_gpu, seconds = torch.cuda.is_available(), []
    compute()
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(times):
        started = time.perf_counter()
        compute()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return min(seconds), torch.cuda.max_memory_allocated() / GIB if on_gpu else 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
