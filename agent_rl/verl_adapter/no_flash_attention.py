"""Patches of verl 0.9.1 for a machine without the package flash-attn, with or without a GPU.

Where it is installed, verl does as it would alone.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
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
        logits_TV, labels_T1 = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1, 1)
        if logits.dtype in (torch.float32, torch.float64):
            chosen_T = logits_TV.gather(-1, labels_T1)[:, 0]
            sums = [rows.logsumexp(-1) for rows in logits_TV.split(TOKENS_AT_A_TIME)]
            return (chosen_T - torch.cat(sums)).view(labels.shape)
        parts = zip(logits_TV.split(TOKENS_AT_A_TIME), labels_T1.split(TOKENS_AT_A_TIME), strict=True)
        found: list[torch.Tensor] = [checkpoint(_in_full_precision, *part, use_reentrant=False) for part in parts]
        return torch.cat(found).view(labels.shape)

    module.logprobs_from_logits_v2 = log_probs  # type: ignore[attr-defined]


def _in_full_precision(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probs in float32, as flash-attn's kernel gives them; the wide copy is made again in the backward pass."""
    return logits.float().log_softmax(-1).gather(-1, labels)[:, 0]
