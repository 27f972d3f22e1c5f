"""JSON-constrained generation on a CPU: SGLang's xgrammar backend masks logits on accelerators only.

A judge gets a JSON schema for its verdict on a CPU as on a GPU. xgrammar has a kernel for the CPU, which SGLang 0.5.12
does not call. `agent_rl.cpu.attention.install` loads this in SGLang's processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["apply_vocab_mask", "install"]

GRAMMAR = "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar"


def install() -> None:
    """Hook SGLang's method that refuses a CPU."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(f"{GRAMMAR}.apply_vocab_mask", apply_vocab_mask, HookType.AROUND)


def apply_vocab_mask(
    original: Callable[..., None], grammar: Any, logits: torch.Tensor, vocab_mask: torch.Tensor
) -> None:
    """Set the logits of forbidden tokens to minus infinity, in place; arguments are SGLang's.

    Shapes: logits (requests, vocabulary), mask (requests, vocabulary / 32) with a bit for each token.
    """
    if logits.device.type != "cpu":
        return original(grammar, logits, vocab_mask)
    from xgrammar import apply_token_bitmask_inplace

    apply_token_bitmask_inplace(logits, vocab_mask)
