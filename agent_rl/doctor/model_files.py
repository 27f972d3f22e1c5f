"""Reads a model's number of parameters and shape from its files, without loading the model."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "ModelFiles",
    "find_model",
    "incomplete_files",
    "parameters_by_shape",
    "parameters_in_files",
]

HEADER_LIMIT = 100_000_000
"""Bytes; safetensors itself refuses a longer header."""


@dataclass(frozen=True)
class ModelFiles:
    """A model as described by its files.

    Attributes:
        name: as in the configuration.
        folder: its files on this machine; None when it is not here.
        config: its `config.json`, the text part of a model with several.
        parameters: their number; None if unknown.
        source: where the number of parameters comes from.
    """

    name: str
    folder: Path | None = None
    config: dict[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    source: str = ""

    @property
    def kv_values_per_token(self) -> int | None:
        """Values in the engine's KV cache for one token; None if the config lacks the shape."""
        try:
            layers, heads, hidden = (
                self.config[key] for key in ("num_hidden_layers", "num_attention_heads", "hidden_size")
            )
        except KeyError:
            return None
        size = self.config.get("head_dim") or hidden // heads
        return int(2 * layers * (self.config.get("num_key_value_heads") or heads) * size)


def find_model(name: str) -> ModelFiles:
    """Describe the model in a folder, or the one of a hub name in this machine's Hugging Face cache."""
    folder = Path(name) if os.path.isdir(name) else _in_cache(name)
    config = _read_config(folder) if folder else {}
    if folder and (count := parameters_in_files(folder)):
        return ModelFiles(name, folder, config, count, "its safetensors files")
    if count := parameters_by_shape(config):
        return ModelFiles(name, folder, config, count, "the shape in its config.json")
    if found := re.search(r"(\d+(?:\.\d+)?)B(?![a-z])", Path(name).name, re.IGNORECASE):
        return ModelFiles(name, folder, config, int(float(found[1]) * 1e9), "its name")
    return ModelFiles(name, folder, config)


def parameters_in_files(folder: Path) -> int:
    """The sum of the sizes in the headers of all safetensors files; 0 when there are none that can be read."""
    try:
        tensors = [tensor for path in _weight_files(folder) for tensor in _tensors(path)]
        return sum(math.prod(tensor["shape"]) for tensor in tensors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0


def incomplete_files(folder: Path) -> list[str]:
    """The safetensors files that are absent, or shorter than their header says, as an interrupted copy leaves them."""
    incomplete = []
    for path in _weight_files(folder):
        try:
            end = max((tensor["data_offsets"][1] for tensor in _tensors(path)), default=0)
            whole = path.stat().st_size > end  # the header itself comes first
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole:
            incomplete.append(path.name)
    return incomplete


def _tensors(path: Path) -> list[dict[str, Any]]:
    """The entries of a safetensors file's header."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length < HEADER_LIMIT else {}
    return [entry for name, entry in header.items() if name != "__metadata__"]


def parameters_by_shape(config: dict[str, Any]) -> int:
    """A decoder with gated MLPs (Llama, Qwen, Mistral and their mixtures of experts), without biases; 0 if unknown."""
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


def _weight_files(folder: Path) -> list[Path]:
    """The safetensors files that the index names: a folder may hold the same weights in another format as well."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        return sorted(folder / name for name in set(index["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return sorted(folder.glob("model.safetensors")) or sorted(folder.glob("*.safetensors"))


def _in_cache(name: str) -> Path | None:
    """The newest snapshot of a hub name in the local cache."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        return None
    home = os.environ.get("HF_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")).expanduser()
    snapshots = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    found = [path.parent for path in snapshots.glob("*/config.json")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(config, dict):
        return {}
    text = config.get("text_config")
    return {**config, **text, "model_type": config.get("model_type")} if isinstance(text, dict) else config
