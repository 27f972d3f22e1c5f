"""Creates a tiny Qwen2 model and its tokenizer from scratch, for tests and for runs on a CPU.

`make_tokenizer` trains a byte-level BPE whose boundaries are chosen for tool-using agents: every digit and newline is
its own token and no token crosses a chat marker, so a conversation yields the same ids whether it is encoded whole or
turn by turn. `make_model` saves a randomly initialized `Qwen2ForCausalLM` next to the tokenizer. Both form a folder
that `AutoTokenizer`, `AutoModelForCausalLM`, verl and SGLang load like any published checkpoint.

The model is untrained. `agent-rl sft` teaches the model a format (`agent_rl.evaluation.experiments.cold_start`);
`python -m agent_rl.cpu.tiny_model --out DIR` creates a model for trying a GPU recipe's setup on a CPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)
from transformers.utils import logging

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
MAX_POSITIONS = 2048

# This is Qwen2.5's ChatML without the default system message and the tool list, for which a tiny model has no use.
# With this template, rendering messages one by one yields exactly the same text as rendering them together.
# Tool calls and results have Qwen2.5's format, so that verl's "hermes" parser can be tried; `tools` are not shown.
CHAT_TEMPLATE = """\
{%- set known = tools %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' + (message.content or '') + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{%- if call.function is defined %}{% set call = call.function %}{% endif %}
{{- '' if loop.first and not message.content else '\\n' }}
{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
{{- (call.arguments if call.arguments is string else call.arguments | tojson) + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# Text to train the tokenizer on: some English and agent formatting; all other text is encoded byte by byte.
CORPUS = (
    "You are a careful assistant that may use tools. Answer the question of the user.\n",
    'Thought: I should compute this first.\nAction: calculator\nAction Input: {"expression": "12+34"}',
    "Observation: 46\nThought: I have the result.\nFinal Answer: 46\n",
    "Observation: Error: I could not read an action. There is no tool with that name.\n",
    '<tool_call>\n{"name": "search", "arguments": {"query": "capital of France"}}\n</tool_call>\n',
    "<tool_response>\nParis is the capital of France.\n</tool_response>\n",
    "<think>\nLet me think about it step by step.\n</think>\n<answer>\nThe answer is \\boxed{72}.\n</answer>\n",
    "Natalie sold some of the eggs to her friends and then she bought half as many more. How many are left in total?\n",
    "How much money does he have after a week, if each costs dollars and the price is a percent of what they pay?\n",
    "def solve(numbers):\n    total = 0\n    for number in numbers:\n        total += number\n    return total\n",
    "result = solve([1, 2])\nprint(result)\n",
)


def make_tokenizer(texts: Iterable[str], out_dir: str | Path, vocab_size: int = 512) -> PreTrainedTokenizerBase:
    """Train a byte-level BPE in Qwen2's format and save it so that `AutoTokenizer.from_pretrained(out_dir)` loads it.

    Args:
        texts: training texts for the merges; any other text can still be encoded, byte by byte.
        out_dir: folder to write to, created if it does not exist.
        vocab_size: maximum number of tokens, including the 256 bytes and the 3 special tokens.

    Returns:
        The tokenizer, with `<|endoftext|>` as padding, `<|im_end|>` as end of sequence and the chat template.
    """
    # transformers uses this class for every model of type qwen2, so the tokenizer is trained with the class's rules.
    rules = Qwen2Tokenizer().backend_tokenizer
    trained = Tokenizer(models.BPE())
    trained.normalizer = rules.normalizer
    # Qwen2's rules already make each digit its own piece, but keep a newline together with the punctuation before it.
    # With these rules, a turn's text would have different ids depending on whether the turn's end follows.
    # Training on isolated newlines prevents this, because no merge contains a newline.
    newline = pre_tokenizers.Split(Regex("\n"), behavior="isolated")
    trained.pre_tokenizer = pre_tokenizers.Sequence([newline, rules.pre_tokenizer])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END_OF_TEXT, IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    bpe = json.loads(trained.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=bpe["vocab"],
        merges=[tuple(merge) for merge in bpe["merges"]],
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[IM_START],
        model_max_length=MAX_POSITIONS,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(str(out_dir))
    return tokenizer


def make_model(
    out_dir: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    init_std: float = 0.02,
    seed: int = 0,
    **shape: int,
) -> Qwen2ForCausalLM:
    """Create a random fp32 Qwen2 with tied embeddings and save it with its config and generation config.

    Args:
        out_dir: folder to write to, normally the tokenizer's.
        tokenizer: source of the vocabulary size and of the padding and end-of-sequence ids.
        init_std: standard deviation of the initial weights.
        seed: random seed for the weights; torch's global random state does not change.
        shape: see `_shape`. A model needs at least 2 layers to copy from its context.

    Raises:
        ValueError: the width cannot be divided into heads of an even size.
    """
    config = Qwen2Config(
        **_shape(tokenizer, **shape),
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=init_std,
        tie_word_embeddings=True,
    )
    model = _make(Qwen2ForCausalLM, config, seed)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True, temperature=1.0
    )
    model.save_pretrained(str(out_dir))
    return model


def make_classifier(
    out_dir: str | Path, tokenizer: PreTrainedTokenizerBase, *, seed: int = 0, **shape: int
) -> LlamaForSequenceClassification:
    """Create and save a random fp32 Llama that outputs a score at the last token, like a Bradley-Terry reward model.

    Args:
        out_dir: folder to write to, normally the tokenizer's.
        tokenizer: source of the vocabulary size and of the padding and end-of-sequence ids.
        seed: random seed for the weights; torch's global random state does not change.
        shape: see `_shape`.
    """
    config = LlamaConfig(**_shape(tokenizer, **shape), initializer_range=0.2, num_labels=1)  # scores differ visibly
    model = _make(LlamaForSequenceClassification, config, seed).eval()
    model.save_pretrained(str(out_dir))
    return model


def _shape(
    tokenizer: PreTrainedTokenizerBase,
    hidden: int = 96,
    layers: int = 3,
    heads: int = 4,
    max_positions: int = MAX_POSITIONS,
) -> dict[str, Any]:
    """Return arguments that the configuration classes of both kinds of model take.

    Args:
        tokenizer: source of the vocabulary size and of the padding and end-of-sequence ids.
        hidden: width; `hidden / heads` is the size of a head and must be even.
        layers: number of blocks.
        heads: attention heads.
        max_positions: maximum length of a sequence in tokens.
    """
    if hidden % heads or (hidden // heads) % 2:
        raise ValueError(f"hidden={hidden} cannot be divided into {heads} heads of an even size")
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "max_position_embeddings": max_positions,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
    }


def _make(kind: Any, config: Any, seed: int) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).float()


def main(argv: list[str] | None = None) -> None:
    """Command line: create an untrained model and a tokenizer in one folder."""
    make: dict[str, Any] = {"policy": make_model, "classifier": make_classifier}
    parser = argparse.ArgumentParser(description="Create an untrained tiny Qwen2 model and its tokenizer.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kind", choices=tuple(make), default="policy", help="default: %(default)s")
    options = parser.parse_args(argv)
    logging.disable_progress_bar()
    tokenizer = make_tokenizer(CORPUS, options.out)
    model = make[options.kind](options.out, tokenizer)
    print(f"{options.out}: {model.num_parameters() / 1e6:.2f} M parameters, {len(tokenizer)} tokens")


if __name__ == "__main__":
    main()
