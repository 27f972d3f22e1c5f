"""Reads a model's number of parameters and shape from its files, without loading the model."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ModelFiles:
    """A model as described by its files.

    Attributes:
        name: the model's name in the configuration.
        folder: the model's folder on this machine, or None if the model is not on this machine.
        config: the model's `config.json`, in which the values of a `text_config` override the others.
        parameters: the number of parameters, or None if unknown.
        source: the source of the number of parameters, in words.
        broken: safetensors files that are absent or truncated, for example by an interrupted copy.
    """

    name: str
    folder: Path | None = None
    config: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    source: str = ""
    broken: list[str] = field(default_factory=list)

    @property
    def kv_values_per_token(self) -> int | None:
        """Number of values in the engine's KV cache for one token, or None if the config lacks the shape."""
        layers, heads = self.config.get("num_hidden_layers"), self.config.get("num_attention_heads")
        if not (layers and heads):
            return None
        size = self.config.get("head_dim") or self.config["hidden_size"] // heads
        return int(2 * layers * (self.config.get("num_key_value_heads") or heads) * size)


def find_model(name: str) -> ModelFiles:
    """Describe the model in a folder, or under a Hub name in this machine's Hugging Face cache."""
    folder = Path(name) if os.path.isdir(name) else _in_cache(name)
    config = _read_json(folder / "config.json") if folder else {}
    if isinstance(text := config.get("text_config"), dict):
        config = {**config, **text, "model_type": config.get("model_type")}
    count, broken = _read_weights(folder) if folder else (0, [])
    size = re.search(r"(?:(\d+)x)?(\d+(?:\.\d+)?)B(?![a-z])", Path(name).name, re.IGNORECASE)  # also 8x7B
    for number, source in (
        (0 if broken else count, "its safetensors files"),
        (parameters_by_shape(config), "the shape in its config.json"),
        (int(int(size[1] or 1) * float(size[2]) * 1e9) if size else 0, "its name"),
    ):
        if number:
            return ModelFiles(name, folder, config, number, source, broken)
    return ModelFiles(name, folder, config, broken=broken)


def _read_weights(folder: Path) -> tuple[int, list[str]]:
    """Return the number of parameters in all safetensors files, and the broken files."""
    from safetensors import SafetensorError, safe_open

    count, broken = 0, []
    # if a folder contains the same weights in two formats, the index lists the files to count
    index = _read_json(folder / "model.safetensors.index.json").get("weight_map", {})
    files = [folder / name for name in sorted(set(index.values()))]
    for path in files or sorted(folder.glob("model.safetensors")) or sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as tensors:
                names = tensors.keys()
                count += sum(math.prod(tensors.get_slice(name).get_shape()) for name in names)
        except (OSError, SafetensorError):
            broken.append(path.name)
    return count, broken


def parameters_by_shape(config: dict[str, Any]) -> int:
    """Count the parameters, without biases, of a decoder with gated MLPs (Llama, Qwen, Mistral, MoE); 0 if unknown."""
    try:
        hidden, layers, heads = (config[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
        vocabulary = config["vocab_size"]
        experts = config.get("num_experts") or config.get("num_local_experts") or config.get("n_routed_experts") or 0
        width = (config.get("moe_intermediate_size") if experts else None) or config["intermediate_size"]
    except KeyError:
        return 0
    size = config.get("head_dim") or hidden // heads
    attention = hidden * size * (2 * heads + 2 * (config.get("num_key_value_heads") or heads))
    mlp = 3 * hidden * width * (experts or 1) + hidden * experts
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings") else 2)
    return int(embeddings + layers * (attention + mlp + 2 * hidden) + hidden)


def _in_cache(name: str) -> Path | None:
    """Return the folder of a Hub model's snapshot in the local cache."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        file = try_to_load_from_cache(name, "config.json", cache_dir=os.environ.get("HF_HUB_CACHE"))
    except HFValidationError:  # a path
        return None
    return Path(file).parent if isinstance(file, str) else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
