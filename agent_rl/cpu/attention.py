"""SGLang's attention on a CPU for all requests of a batch at once, as a plugin of SGLang (group `sglang.srt.plugins`).

While it decodes, SGLang's backend `torch_native` handles one request after the other, with a dozen small operations for
each request and layer: at 128 concurrent conversations with a tiny model that is a tenth of a training step. Here keys
and values are gathered for the whole batch, padded to its longest context. A batch whose padding would exceed
`MAX_PADDED` is left to SGLang's own loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from agent_rl.cpu import grammar

__all__ = ["decode", "install"]

BACKEND = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"

MAX_PADDED = 2**24
"""Elements of the largest padded tensor (64 MiB in fp32)."""


def install() -> None:
    """Install the hooks of this module and of `grammar`, on a CPU only; SGLang calls this in each of its processes."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{BACKEND}._run_sdpa_forward_decode", decode, HookType.AROUND)
    grammar.install()


def decode(
    original: Callable[..., torch.Tensor],
    backend: Any,
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """One new token of each request against its context; arguments and result are SGLang's.

    Shapes: query and output (requests, heads, head size), caches (slots, key heads, head size).
    """
    longest = int(seq_lens.max())
    if len(seq_lens) * longest * k_cache[0].numel() > MAX_PADDED or k_cache.dtype != query.dtype:
        return original(backend, query, output, k_cache, v_cache, req_to_token, req_pool_indices, seq_lens, **options)
    slots_BS = req_to_token[req_pool_indices, :longest]
    mask_BS = torch.arange(longest) < seq_lens[:, None]  # masked slots may belong to other requests
    # `index_select` of whole rows copies memory; indexing with a tensor was eight times as slow.
    keys, values = (
        cache.flatten(1).index_select(0, slots_BS.reshape(-1).long()).view(*slots_BS.shape, *cache.shape[1:])
        for cache in (k_cache, v_cache)
    )
    attended = torch.nn.functional.scaled_dot_product_attention(
        query[:, :, None],
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=mask_BS[:, None, None],
        scale=options.get("scaling"),
        enable_gqa=options.get("enable_gqa", False),
    )
    output.copy_(attended[:, :, 0])
    return output
