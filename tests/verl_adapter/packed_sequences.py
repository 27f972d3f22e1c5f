"""Compares packed sequences under torch's kernel, for which a function on a CPU stands in, with one sequence at a time.

Run in a process that has verl without our plugin: sdpa computes what is expected before anything is patched.
"""

from itertools import pairwise

import torch
from torch.nn.attention import varlen
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForTokenClassification,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForTokenClassification,
    modeling_flash_attention_utils,
)
from verl.models.transformers import qwen2_vl
from verl.models.transformers.monkey_patch import apply_monkey_patch

from agent_rl.verl_adapter import no_flash_attention

WINDOWS = set()


def kernel(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, scale=None, window_size=(-1, -1)):
    """`varlen_attn` of torch 2.11."""
    assert query.shape[1] == key.shape[1]
    assert [type(each) for each in (max_q, max_k)] == [int, int]
    WINDOWS.add(window_size)
    parts = []
    for begin, end in pairwise(cu_seq_q):
        q, k, v = (each[begin:end].transpose(0, 1) for each in (query, key, value))
        part = scaled_dot_product_attention(q, k, v, is_causal=window_size == (-1, 0), scale=scale)
        parts.append(part.transpose(0, 1))
    return torch.cat(parts)


LENGTHS = [7, 3, 12]
START, IMAGE = 37, 38
SHAPE = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 40, "num_labels": 1, "classifier_dropout": 0.0,
    "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
WITH_IMAGES = Qwen2_5_VLConfig(
    text_config={**SHAPE, "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}},
    vision_config={"hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 48, "depth": 2, "num_heads": 2,
                   "fullatt_block_indexes": [1], "window_size": 56},
    image_token_id=IMAGE, video_token_id=39, vision_start_token_id=START, vision_end_token_id=36,
)  # fmt: skip
MODELS = [
    (Qwen2ForCausalLM, Qwen2Config(**SHAPE)),
    (Qwen3ForCausalLM, Qwen3Config(**SHAPE, head_dim=16)),
    (LlamaForCausalLM, LlamaConfig(**SHAPE)),
    (Qwen2ForTokenClassification, Qwen2Config(**SHAPE)),
    (Qwen3ForTokenClassification, Qwen3Config(**SHAPE, head_dim=16)),
    (Qwen2_5_VLForConditionalGeneration, WITH_IMAGES),
]
"""The policies, critics and reward models that recipes name, and SmolLM2's class."""

torch.manual_seed(0)
TOKENS = torch.randint(2, 36, (1, sum(LENGTHS)))
TOKENS[0, 11:16] = torch.tensor([START] + 4 * [IMAGE])
PIXELS = {"pixel_values": torch.randn(16, 1176, dtype=torch.float64), "image_grid_thw": torch.tensor([[1, 4, 4]])}
POSITIONS = torch.cat([torch.arange(length) for length in LENGTHS])


def run(model, *, packed):
    """Logits of all tokens, and every gradient."""
    has_images = isinstance(model, Qwen2_5_VLForConditionalGeneration)
    positions = POSITIONS.expand(4, 1, -1) if has_images else POSITIONS[None]  # of text, time, height, width
    whole = [(TOKENS, positions)]
    parts = whole if packed else zip(TOKENS.split(LENGTHS, -1), positions.split(LENGTHS, -1), strict=True)
    logits = torch.cat([
        model(input_ids=ids, position_ids=at, attention_mask=None, use_cache=False,
              **(PIXELS if has_images and (ids == IMAGE).any() else {})).logits[0]
        for ids, at in parts
    ])  # fmt: skip
    logits.square().sum().backward()
    return [logits.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]


known = []
for kind, config in MODELS:
    model = kind._from_config(config, attn_implementation="sdpa", dtype=torch.float64)
    known.append((model.state_dict(), run(model, packed=False)))
no_flash_attention.packed_attention(modeling_flash_attention_utils)
no_flash_attention.multimodal_attention(qwen2_vl)
varlen.varlen_attn = kernel
for (kind, config), (weights, expected) in zip(MODELS, known, strict=True):
    model = kind._from_config(config, attn_implementation="flash_attention_2", dtype=torch.float64)
    model.load_state_dict(weights)
    apply_monkey_patch(model, use_remove_padding=True)
    for value, other in zip(run(model, packed=True), expected, strict=True):
        torch.testing.assert_close(value, other)
print(sorted(WINDOWS))
