"""Patches transformers and verl 0.9.1 for machines without the flash-attn package, with or without a GPU.

If flash-attn is installed, the patches change nothing.

On a GPU, torch's kernel for packed sequences, `torch.nn.attention.varlen.varlen_attn`, serves as `flash_attention_2`.
Without the patches, every version of transformers downloads a kernel from the Hub at each model load and fails offline.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from transformers.utils import is_flash_attn_2_available

from agent_rl.errors import ConfigError

FLASH_ATTENTION = "flash_attention_2"
TOKENS_AT_A_TIME = 1024


def packed_attention(module: ModuleType) -> None:
    """`transformers.modeling_flash_attention_utils`: use torch's kernel where a model requests `flash_attention_2`."""
    original = module._lazy_imports

    @functools.wraps(original)
    def lazy_imports(implementation: str | None, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        if implementation != FLASH_ATTENTION or is_flash_attn_2_available():
            result: tuple[Any, ...] = original(implementation, *args, **kwargs)
            return result
        return flash_attn_func, flash_attn_varlen_func, None, module._pad_input, module._unpad_input

    module._lazy_imports = lazy_imports  # type: ignore[attr-defined]
    module.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2]["general_availability_check"] = lambda: True


def multimodal_attention(module: ModuleType) -> None:
    """`verl.models.transformers.qwen2_vl`: provide the names that the module would import from flash-attn."""
    if not is_flash_attn_2_available():
        module.__dict__.update(
            flash_attn_func=flash_attn_func,
            flash_attn_varlen_func=flash_attn_varlen_func,
            _flash_supports_window_size=True,
            _flash_supports_deterministic=False,
            _flash_use_top_left_mask=False,
        )


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int | torch.Tensor,
    max_seqlen_k: int | torch.Tensor,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    dropout_p: float = 0.0,
    softcap: float = 0.0,
    s_aux: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute attention over packed sequences, with flash-attn's arguments, which transformers and verl pass.

    Shapes: q (T, heads, head size); k and v (T, key heads, head size), where a key head may serve several
    query heads; the cumulative lengths (sequences + 1,), int32.

    Raises:
        ConfigError: the model uses dropout, soft capping or attention sinks, which torch's kernel does not support.
    """
    from torch.nn.attention import varlen

    for is_needed, name in ((dropout_p, "dropout"), (softcap, "soft capping"), (s_aux is not None, "attention sinks")):
        if is_needed:
            raise ConfigError(
                "actor_rollout_ref.model.override_config.attn_implementation",
                f"the model has {name} in its attention, which torch's kernel does not support",
                "Install flash-attn, or set the key to eager",
            )
    window = (window_size[0], 0) if causal else window_size
    if (repeats := q.shape[1] // k.shape[1]) > 1:  # torch 2.11, which SGLang needs, lacks `enable_gqa`
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    lengths = cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k)
    result: torch.Tensor = varlen.varlen_attn(q, k, v, *lengths, scale=softmax_scale, window_size=window)
    return result


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
    """Compute attention over sequences of equal length, shaped (sequences, tokens, heads, head size)."""
    ends_q, ends_k = (
        torch.arange(0, len(each) * each.shape[1] + 1, each.shape[1], dtype=torch.int32, device=q.device)
        for each in (q, k)
    )
    flat_q, flat_k, flat_v = (each.flatten(0, 1) for each in (q, k, v))
    longest = q.shape[1], k.shape[1]
    return flash_attn_varlen_func(flat_q, flat_k, flat_v, ends_q, ends_k, *longest, **options).view_as(q)


def token_log_probs(module: ModuleType) -> None:
    """`verl.utils.torch_functional`: compute the log-probs of many tokens at a time.

    To save memory, verl computes log-probs row by row, and each row is one token. On a CPU, thousands of one-token
    operations, and as many in the backward pass, took a quarter of a training step. verl calls this function only if
    flash-attn's kernel is missing.
    """

    @functools.wraps(module.logprobs_from_logits_v2)
    def log_probs(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _LogProbs.apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
        return result.view(labels.shape)

    module.logprobs_from_logits_v2 = log_probs  # type: ignore[attr-defined]


class _LogProbs(torch.autograd.Function):
    """Computes log-probs in at least float32, as flash-attn's kernel does, copying only some tokens at a time.

    The backward pass processes only tokens that have a gradient, unlike prompts, observations and padding.
    """

    @staticmethod
    def forward(ctx: Any, logits_TV: torch.Tensor, labels_T: torch.Tensor) -> torch.Tensor:
        """Shapes: T is the number of tokens, and V is the size of the vocabulary."""
        sums_T = torch.cat([_wide(rows).logsumexp(-1) for rows in logits_TV.split(TOKENS_AT_A_TIME)])
        ctx.save_for_backward(logits_TV, labels_T, sums_T)
        return _wide(logits_TV.gather(-1, labels_T[:, None])[:, 0]) - sums_T

    @staticmethod
    def backward(ctx: Any, gradient_T: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the logits' gradient: the result's gradient times (one-hot label minus probabilities)."""
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
