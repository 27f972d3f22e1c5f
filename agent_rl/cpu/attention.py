"""SGLang's attention on a CPU for all requests of a batch at once, as a plugin of SGLang (group `sglang.srt.plugins`).

Its backend `torch_native` handles one request after the other, with a dozen small operations for each request and
layer: at 128 concurrent conversations with a tiny model that was half of the engine's time. Here keys and values are
gathered for the whole batch, padded to its longest context. Where padding would cost more memory than it saves time,
SGLang's own loop does the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from agent_rl.cpu import grammar

__all__ = ["decode", "extend", "install"]

BACKEND = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"

MAX_PADDED = 2**24
"""Elements of the largest padded tensor (64 MiB in fp32)."""


def install() -> None:
    """Hook the two methods, and what `grammar` hooks; SGLang calls this in each of its processes. Not on a GPU."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{BACKEND}._run_sdpa_forward_decode", decode, HookType.AROUND)
    HookRegistry.register(f"{BACKEND}._run_sdpa_forward_extend", extend, HookType.AROUND)
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
    mask_BS = torch.arange(longest) < seq_lens[:, None]
    attended = _attend(query[:, :, None], k_cache, v_cache, slots_BS, mask_BS[:, None, None], options)
    output.copy_(attended[:, :, 0])
    return output


def extend(
    original: Callable[..., torch.Tensor],
    backend: Any,
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_prefix_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """Several new tokens of each request, each seeing those before it; arguments and result are SGLang's.

    Shapes: query and output (all new tokens, heads, head size), caches (slots, key heads, head size).
    """
    requests, new, longest = len(seq_lens), int(extend_seq_lens.max()), int(seq_lens.max())
    padded = requests * max(longest * k_cache[0].numel(), new * longest * query.shape[1])
    if padded > MAX_PADDED or k_cache.dtype != query.dtype or not options.get("causal"):
        lengths = (seq_lens, extend_prefix_lens, extend_seq_lens)
        return original(backend, query, output, k_cache, v_cache, req_to_token, req_pool_indices, *lengths, **options)
    positions_N = torch.arange(new)
    is_new_BN = positions_N < extend_seq_lens[:, None]
    query_BNHD = query.new_zeros(requests, new, *query.shape[1:])
    query_BNHD[is_new_BN] = query
    last_BN = extend_prefix_lens[:, None] + positions_N
    mask_BNS = torch.arange(longest) <= last_BN[:, :, None]
    slots_BS = req_to_token[req_pool_indices, :longest]
    attended = _attend(query_BNHD.transpose(1, 2), k_cache, v_cache, slots_BS, mask_BNS[:, None], options)
    output.copy_(attended.transpose(1, 2)[is_new_BN])
    return output


def _attend(
    query_BHND: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots_BS: torch.Tensor,
    mask: torch.Tensor,
    options: dict[str, Any],
) -> torch.Tensor:
    """Attention over the slots of the cache; masked slots may be anybody's.

    `index_select` of whole rows copies memory; indexing with a tensor was eight times as slow.
    """
    slots = slots_BS.reshape(-1).long()
    keys, values = (
        cache.flatten(1).index_select(0, slots).view(*slots_BS.shape, *cache.shape[1:]).transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    attended: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(
        query_BHND,
        keys,
        values,
        attn_mask=mask,
        scale=options.get("scaling"),
        enable_gqa=options.get("enable_gqa", False),
    )
    return attended
