"""SGLang plugin (group `sglang.srt.plugins`) that computes attention on a CPU for all requests in a batch together.

During decoding, SGLang's `torch_native` backend handles one request after another, with a dozen small operations for
each request and layer: at 128 concurrent conversations with a tiny model, this takes a tenth of a training step. This
module gathers keys and values for the whole batch, padded to its longest context. SGLang's own loop still handles
batches whose padding would exceed `MAX_PADDED`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from agent_rl.cpu import sampling

BACKEND = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend"

MAX_PADDED = 2**24
"""Number of elements in the largest padded tensor (64 MiB in fp32)."""


class Slots(NamedTuple):
    """Where the contexts of a batch's requests lie in the key and value caches; the slots are the same for all layers.

    Shapes: B is the number of requests, and S the number of tokens in the longest context.
    """

    flat: torch.Tensor
    """The slots, with shape (B * S,); those past the end of a context may belong to other requests."""
    mask_BS: torch.Tensor


def install() -> None:
    """On a CPU, install the hooks from this module and from `sampling`; SGLang calls this function in its processes."""
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    hooks = {
        f"{BACKEND}.init_forward_metadata": prepare,
        f"{BACKEND}._run_sdpa_forward_decode": decode,
        sampling.MASKING: sampling.apply_vocab_mask,
        sampling.SAMPLER: sampling.sample,
    }
    for place, hook in hooks.items():
        HookRegistry.register(place, hook, HookType.AROUND)


def prepare(original: Callable[..., None], backend: Any, forward_batch: Any) -> None:
    """Find the slots of a decoding batch once, before the model's layers run; the arguments have SGLang's format."""
    original(backend, forward_batch)
    backend.forward_metadata = None
    if not forward_batch.forward_mode.is_decode():
        return
    lens = forward_batch.seq_lens
    longest = int(lens.max())
    pool = getattr(forward_batch, "req_to_token_pool", None) or backend.req_to_token_pool  # SGLang 0.5.12, 0.5.13
    slots_BS = pool.req_to_token[forward_batch.req_pool_indices, :longest]
    backend.forward_metadata = Slots(slots_BS.reshape(-1).long(), torch.arange(longest) < lens[:, None])


def decode(
    original: Callable[..., torch.Tensor],
    backend: Any,
    query: torch.Tensor,
    output: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    *rest: torch.Tensor,
    **options: Any,
) -> torch.Tensor:
    """Attend from each request's new token to the request's context; arguments and result are as in SGLang.

    Shapes: query and output (requests, heads, head size), caches (slots, key heads, head size).
    """
    slots: Slots | None = backend.forward_metadata
    others = options.get("is_cross_attn") or options.get("sliding_window_size")  # in SGLang 0.5.13
    if others or slots is None or len(slots.flat) * k_cache[0].numel() > MAX_PADDED or k_cache.dtype != query.dtype:
        return original(backend, query, output, k_cache, v_cache, *rest, **options)
    # `index_select` copies whole rows of memory; indexing with a tensor took eight times as long.
    keys, values = (
        cache.flatten(1).index_select(0, slots.flat).view(*slots.mask_BS.shape, *cache.shape[1:]).transpose(1, 2)
        for cache in (k_cache, v_cache)
    )
    attended = torch.nn.functional.scaled_dot_product_attention(
        query.unflatten(1, (keys.shape[1], -1)),  # query heads that share a key head act like queries of a single head
        keys,
        values,
        attn_mask=slots.mask_BS[:, None, None],
        scale=options.get("scaling"),
    )
    output.copy_(attended.flatten(1, 2))
    return output
