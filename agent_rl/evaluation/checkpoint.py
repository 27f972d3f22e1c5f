"""A checkpoint of training as a folder that an engine can load, through verl's model merger.

The merger always writes bfloat16: a policy that was trained in float32 is evaluated with rounded weights.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from agent_rl.errors import ConfigError
from agent_rl.launch.process import die_with_parent

__all__ = ["model_folder"]


def model_folder(model: str, merged: Path) -> Path:
    """A model's folder, or a checkpoint merged into one.

    Args:
        model: a model's folder; the folder of a checkpoint (`global_step_N`, or its `actor`); or the folder of a
            run's checkpoints, where the newest is taken.
        merged: where a merged model is put; what is there already is used.

    Raises:
        ConfigError: for anything else, or a checkpoint that cannot be merged.
    """
    folder = Path(model)
    if (folder / "config.json").is_file():
        return folder
    shards = _shards(folder)
    if shards is None:
        problem = f"{model} is neither a model (no config.json) nor a checkpoint of training (no actor folder)"
        raise ConfigError("model", problem, "Correct the path, or name the model's server with --endpoint")
    if not merged.is_dir():
        _merge(shards, merged)
    return merged


def _shards(folder: Path) -> Path | None:
    """Where the policy's weights are."""
    newest = folder / "latest_checkpointed_iteration.txt"
    if newest.is_file():
        folder = folder / f"global_step_{newest.read_text().strip()}"
    for place in (folder / "actor", folder):
        if (place / "huggingface").is_dir() or (place / "model/huggingface").is_dir():
            return place
    return None


def _merge(shards: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary, log = target.with_suffix(".tmp"), target.with_suffix(".log")
    shutil.rmtree(temporary, ignore_errors=True)
    backend = "fsdp" if (shards / "fsdp_config.json").is_file() else "megatron"
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", backend]
    command += ["--local_dir", str(shards), "--target_dir", str(temporary)]
    with open(log, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, preexec_fn=die_with_parent, check=False)
    if done.returncode:
        last = (log.read_text(errors="replace").strip() or "no output").splitlines()[-1]
        raise ConfigError("model", f"verl cannot merge {shards}: {last}", f"See {log}")
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
