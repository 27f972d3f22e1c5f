"""A checkpoint of training as a model: merged once by verl into a folder beside it, for evaluation and for another run.

verl's merger always writes bfloat16: a policy that was trained in float32 gets rounded weights.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from filelock import FileLock

from agent_rl.errors import ConfigError

__all__ = [
    "MERGED",
    "file_digest",
    "model_folder",
    "names_a_folder",
    "policy_shards",
    "require_model",
    "settings_folder",
    "weights_digest",
]

MERGED = "merged_model"
"""The merged model's folder in that of the checkpoint, `global_step_N`."""


def model_folder(model: str, key: str) -> Path:
    """A model's folder, or a checkpoint merged into one.

    Args:
        model: a model's folder; the folder of a checkpoint (`global_step_N`, or its `actor`); or the folder of a run or
            of its checkpoints, where the newest is taken.
        key: of the configuration, that named it.

    Raises:
        ConfigError: for anything else, or a checkpoint that cannot be merged.
    """
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder
    shards = policy_shards(folder)
    if shards is None:
        problem = f"{model} is neither a model (no config.json) nor a checkpoint of training (no actor folder)"
        raise ConfigError(key, problem, "Correct the path")
    merged = shards.parent / MERGED
    if not _is_of(shards, merged):
        _merge(shards, merged, key)
    return merged


def weights_digest(model: Path) -> str:
    """The SHA-256 of a model's weights; of several files, that of a list of theirs.

    Args:
        model: the model's folder.
    """
    files = sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(file_digest, files))
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def policy_shards(folder: Path) -> Path | None:
    """The folder with the policy's shards in a checkpoint; None for a folder that is no checkpoint."""
    if (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    newest = folder / "latest_checkpointed_iteration.txt"
    if newest.is_file():
        folder = folder / f"global_step_{newest.read_text().strip()}"
    for place in (folder / "actor", folder):
        if settings_folder(place).is_dir():
            return place
    return None


def settings_folder(shards: Path) -> Path:
    """The folder with the configuration and the tokenizer of a checkpoint's model."""
    beside = shards / "huggingface"
    return beside if beside.is_dir() else shards / "model/huggingface"


def names_a_folder(name: str) -> bool:
    """Whether a model's name can only be a folder: a name of the hub is `owner/model`, or of an old model one word."""
    return name.startswith(("/", ".", "~", "outputs/")) or (name.count("/") > 1 and "://" not in name)


def require_model(model: str, key: str) -> None:
    """Refuse a checkpoint where verl would look for a model.

    Raises:
        ConfigError: naming what merges it.
    """
    folder = Path(model).expanduser()
    if policy_shards(folder) is not None and not (folder / "config.json").is_file():
        remedy = "Start the run with agent-rl train, which merges it into a model"
        raise ConfigError(key, f"{model} is a checkpoint of training, which verl cannot load", remedy)


def _is_of(shards: Path, merged: Path) -> bool:
    """Whether the model was merged from these shards: a run that went back to an earlier step writes new ones."""
    if not merged.is_dir():
        return False
    made = merged.stat().st_mtime
    return all(each.stat().st_mtime <= made for each in shards.rglob("*") if each.is_file())


def _merge(shards: Path, target: Path, key: str) -> None:
    try:
        with FileLock(target.with_suffix(".lock")):
            if not _is_of(shards, target):  # another process may have merged it meanwhile
                shutil.rmtree(target, ignore_errors=True)
                _merge_alone(shards, target, key)
    except OSError as error:
        problem = f"the merged model of {shards} cannot be written: {error.strerror}"
        raise ConfigError(key, problem, "Copy the checkpoint to a folder that you may write to") from error


def _merge_alone(shards: Path, target: Path, key: str) -> None:
    temporary, log = target.with_suffix(".tmp"), target.with_suffix(".log")
    shutil.rmtree(temporary, ignore_errors=True)
    backend = "fsdp" if (shards / "fsdp_config.json").is_file() else "megatron"
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", backend]
    command += ["--local_dir", str(shards), "--target_dir", str(temporary)]
    with open(log, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = (log.read_text(errors="replace").strip() or "no output").splitlines()[-1]
        raise ConfigError(key, f"verl cannot merge {shards}: {last}", f"See {log}")
    if (temporary / "lora_adapter").is_dir():
        _apply_adapter(temporary)
    os.replace(temporary, target)


def _apply_adapter(folder: Path) -> None:
    """Add the LoRA adapter, which the merger puts beside the base model, to the weights."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    PeftModel.from_pretrained(base, folder / "lora_adapter").merge_and_unload().save_pretrained(folder)
    shutil.rmtree(folder / "lora_adapter")
