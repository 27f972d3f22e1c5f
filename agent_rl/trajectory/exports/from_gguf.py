"""`model_from_gguf` converts a llama.cpp GGUF file to a model folder that the trainer and the engine can load.

transformers reads the weights, quantized or not, as float32, and the tokenizer's vocabulary and merges. This module
reads the special tokens (begin, end, padding, unknown) from the file, because transformers may choose others. For
SmolLM2, this module uses the token that starts a message as the end token.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError

MAGIC = b"GGUF"
SPECIAL = {"bos": "bos_token", "eos": "eos_token", "padding": "pad_token", "unknown": "unk_token"}
"""Names of the special tokens in the file and in transformers."""
TEMPLATE = "tokenizer.chat_template"
LICENSE = "general.license"


def model_from_gguf(file: Path, out: Path) -> dict[str, Any]:
    """Convert a GGUF file to a model folder.

    Args:
        file: a GGUF file that contains a tokenizer and a chat template.
        out: the folder to create.

    Returns:
        Facts about the file: `architecture`, `name`, `license` (empty if unknown), `types` (the number of matrices
        of each type), `parameters`.

    Raises:
        ConfigError: the `gguf` package is missing, the folder is not empty, or the file is not GGUF, has no chat
            template, or has an architecture that transformers does not read.
    """
    if out.exists() and any(out.iterdir()):
        raise ConfigError("OUT", f"{out} is not empty", "Choose another folder")
    fields, facts = _read(file)
    if TEMPLATE not in fields:
        raise ConfigError("FILE", f"{file} has no chat template", "Use the GGUF file of a chat model")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32")
    except ValueError as error:
        problem = f"transformers cannot read the {facts['architecture']} architecture: {error}"
        raise ConfigError("FILE", problem, "Use the model folder published by the model's owners") from error
    numbers = {ours: fields.get(f"tokenizer.ggml.{name}_token_id") for name, ours in SPECIAL.items()}
    special = {
        ours: tokenizer.convert_ids_to_tokens(int(number)) for ours, number in numbers.items() if number is not None
    }
    special.setdefault("pad_token", special.get("eos_token"))
    tokenizer.add_special_tokens({name: token for name, token in special.items() if token is not None})
    tokenizer.chat_template = fields[TEMPLATE]
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    for name, number in ids.items():
        setattr(model.config, name, number)
        setattr(model.generation_config, name, number)
    tokenizer.clean_up_tokenization_spaces = False  # otherwise decoding removes spaces before punctuation
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    facts["parameters"] = model.num_parameters()
    (out / "gguf.json").write_text(json.dumps({"file": file.name, **facts}, indent=2) + "\n", encoding="utf-8")
    return facts


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of the file that the conversion needs, and facts about the file."""
    try:
        import gguf
    except ImportError as error:
        raise ConfigError("FILE", "the gguf package is not installed", "Run pip install gguf") from error
    if not file.is_file():
        raise ConfigError("FILE", f"there is no file {file}", "Pass an existing file")
    with open(file, "rb") as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ConfigError("FILE", f"{file} is not a GGUF file", "Pass a file that llama.cpp can read")
    reader = gguf.GGUFReader(file)
    names = (
        "general.architecture",
        "general.name",
        LICENSE,
        TEMPLATE,
        *(f"tokenizer.ggml.{name}_token_id" for name in SPECIAL),
    )
    fields = {name: reader.fields[name].contents() for name in names if name in reader.fields}
    types = Counter(tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1)
    return fields, {
        "architecture": fields["general.architecture"],
        "name": fields.get("general.name", file.stem),
        "license": fields.get(LICENSE, ""),
        "types": dict(types),
    }
