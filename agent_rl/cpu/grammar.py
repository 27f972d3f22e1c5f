"""JSON-constrained generation on a CPU: SGLang's xgrammar backend masks logits on accelerators only.

On a CPU too, a judge's verdict must follow a JSON schema. xgrammar has a kernel for the CPU, which SGLang 0.5.12 does
not call. `agent_rl.cpu.attention.install` installs the kernel in SGLang's processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["MASKING", "apply_vocab_mask"]

MASKING = "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar.apply_vocab_mask"
"""SGLang's method that rejects a CPU."""


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
