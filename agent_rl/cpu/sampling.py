"""Masks and samples tokens on a CPU, in SGLang's processes; `agent_rl.cpu.attention.install` installs both functions.

On a CPU too, a judge's verdict must follow a JSON schema. xgrammar has a kernel for the CPU, but SGLang 0.5.12 does
not call the kernel: its xgrammar backend masks logits on accelerators only.

A token is sampled by inverting the cumulative probabilities. torch.multinomial draws a random number for each entry of
the vocabulary, which takes 69 ms for 64 requests and 49,152 entries on one core, whereas the sums take 3 ms. With a
0.1M-parameter model, torch.multinomial took a tenth of the engine's time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

MASKING = "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar.apply_vocab_mask"
"""SGLang's method that rejects logits on a CPU."""
SAMPLER = "sglang.srt.layers.sampler.sampling_from_probs_torch"

AT_A_TIME = 2**16
"""Number of probabilities whose cumulative sums fit into a core's cache."""


def apply_vocab_mask(
    original: Callable[..., None], grammar: Any, logits: torch.Tensor, vocab_mask: torch.Tensor
) -> None:
    """Set the logits of forbidden tokens to minus infinity, in place; SGLang's method takes the same arguments.

    Shapes: logits (requests, vocabulary), mask (requests, vocabulary / 32) with a bit for each token.
    """
    if logits.device.type != "cpu":
        return original(grammar, logits, vocab_mask)
    from xgrammar import apply_token_bitmask_inplace

    apply_token_bitmask_inplace(logits, vocab_mask)


def sample(original: Callable[..., torch.Tensor], probs: torch.Tensor, **options: Any) -> torch.Tensor:
    """Sample a token for each request; arguments and result have SGLang's format.

    SGLang's function still handles requests with a seed, and rejects probabilities that are not finite. Sums are
    computed in float64, so that the small probabilities in a large vocabulary are not lost.

    Shapes: probs (requests, vocabulary), result (requests,) in int32.
    """
    if options.get("sampling_seed") is not None or probs.device.type != "cpu":
        return original(probs, **options)
    drawn = torch.rand(len(probs), 1, dtype=torch.float64)
    rows = max(1, AT_A_TIME // probs.shape[1])
    tokens = []
    for some, draw in zip(probs.split(rows), drawn.split(rows), strict=True):
        sums = some.cumsum(-1, dtype=torch.float64)
        if not sums[:, -1].isfinite().all():
            return original(probs, **options)
        tokens.append(torch.searchsorted(sums, draw * sums[:, -1:], right=True))
    return torch.cat(tokens)[:, 0].clamp_(max=probs.shape[1] - 1).to(torch.int32)
