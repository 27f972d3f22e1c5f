"""Patches of verl 0.9.1 for a machine without the package flash-attn, with or without a GPU.

Where it is installed, verl does as it would alone.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from transformers.utils import is_flash_attn_2_available

__all__ = ["token_log_probs", "value_head_attention"]

TOKENS_AT_A_TIME = 1024


def value_head_attention(module: ModuleType) -> None:
    """`verl.utils.model`: a critic with torch's attention; verl asks for flash attention whatever the config says."""
    original = module.load_valuehead_model

    @functools.wraps(original)
    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        if is_flash_attn_2_available():
            return original(local_path, torch_dtype, model_config, trust_remote_code)
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = load  # type: ignore[attr-defined]


def token_log_probs(module: ModuleType) -> None:
    """`verl.utils.torch_functional`: compute the log-probs of many tokens at a time.

    verl goes row by row to save memory, and its rows are tokens: thousands of operations on one token each, and as many
    in the backward pass, took a quarter of a training step on a CPU. verl calls this function only where there is no
    kernel of flash-attn.
    """

    @functools.wraps(module.logprobs_from_logits_v2)
    def log_probs(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = _LogProbs.apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
        return found.view(labels.shape)

    module.logprobs_from_logits_v2 = log_probs  # type: ignore[attr-defined]


class _LogProbs(torch.autograd.Function):
    """Log-probs in at least float32, as flash-attn's kernel gives them, with one wide copy of some tokens at a time.

    The backward pass works on tokens with a gradient only: prompts, observations and padding have none.
    """

    @staticmethod
    def forward(ctx: Any, logits_TV: torch.Tensor, labels_T: torch.Tensor) -> torch.Tensor:
        """Shapes: T tokens, V entries of the vocabulary."""
        sums_T = torch.cat([_wide(rows).logsumexp(-1) for rows in logits_TV.split(TOKENS_AT_A_TIME)])
        ctx.save_for_backward(logits_TV, labels_T, sums_T)
        return _wide(logits_TV.gather(-1, labels_T[:, None])[:, 0]) - sums_T

    @staticmethod
    def backward(ctx: Any, gradient_T: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Of the logits: gradient times (one for the label, minus the probabilities)."""
        logits_TV, labels_T, sums_T = ctx.saved_tensors
        result_TV = torch.zeros_like(logits_TV)
        for some in gradient_T.nonzero()[:, 0].split(TOKENS_AT_A_TIME):
            gradient = gradient_T[some, None]
            wide = _wide(logits_TV[some]).sub(sums_T[some, None]).exp_().mul_(-gradient)
            wide.scatter_add_(-1, labels_T[some, None], gradient)
            result_TV[some] = wide.to(result_TV.dtype)
        return result_TV, None


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values if values.dtype == torch.float64 else values.float()
