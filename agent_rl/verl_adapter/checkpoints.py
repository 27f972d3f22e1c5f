"""Merges a training checkpoint into a model, and checks that the checkpoint from which a run resumes is complete.

A checkpoint is merged only once, into a folder inside it, for evaluations and further runs. verl's merger always writes
bfloat16, so the weights of a policy trained in float32 are rounded.

verl silently starts from scratch if the newest checkpoint's folder is missing, and fails in a worker if one of its
files is missing or damaged. Only FSDP checkpoints of runs on one node are checked, since each of several nodes may
store only its own ranks' files. If the newest checkpoint is damaged, a run resumes from the newest intact one
(`step_back`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from filelock import FileLock

from agent_rl.errors import ConfigError
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import Needs, check
from agent_rl.verl_adapter.inspection import needs_critic
from agent_rl.work.parts import replace_file
from agent_rl.work.store import file_digest

MERGED = "merged_model"
"""The merged model's folder inside the checkpoint's folder, `global_step_N`."""
TRACKER = "latest_checkpointed_iteration.txt"
START_AGAIN = "or start again with trainer.resume_mode=disable and another trainer.default_local_dir"


def model_folder(model: str, key: str) -> Path:
    """Return a model's folder, after merging the model from a checkpoint if necessary.

    Args:
        model: a model's folder; the folder of a checkpoint (`global_step_N`, or its `actor`); or the folder of a run or
            of its checkpoints, of which the newest is used.
        key: the configuration key that names the model.

    Raises:
        ConfigError: `model` is neither a model nor a checkpoint, or the checkpoint cannot be merged.
    """
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return folder
    shards = policy_shards(folder)
    if shards is None:
        problem = f"{model} is neither a model (no config.json) nor a training checkpoint (no actor folder)"
        raise ConfigError(key, problem, "Correct the path")
    merged = shards.parent / MERGED
    if not _is_merged_from(shards, merged):
        _merge(shards, merged, key)
    return merged


def weights_digest(model: Path) -> str:
    """Return the SHA-256 of a model's weights; for several files, the hash of the list of their hashes.

    Args:
        model: the model's folder.
    """
    files = sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(file_digest, files))
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def policy_shards(folder: Path) -> Path | None:
    """Return the folder with the policy's shards in a checkpoint, or None if the folder is not a checkpoint."""
    if (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    newest = folder / TRACKER
    if newest.is_file():
        folder = folder / f"global_step_{newest.read_text().strip()}"
    for place in (folder / "actor", folder):
        if settings_folder(place).is_dir():
            return place
    return None


def settings_folder(shards: Path) -> Path:
    """Return the folder with the configuration and the tokenizer of a checkpoint's model."""
    inside = shards / "huggingface"
    return inside if inside.is_dir() else shards / "model/huggingface"


def names_a_folder(name: str) -> bool:
    """Whether a model's name can only be a folder; names on the Hub are `owner/model` or, for old models, one word."""
    return name.startswith(("/", ".", "~", "outputs/")) or (name.count("/") > 1 and "://" not in name)


def step_back(config: Any) -> str | None:
    """If the checkpoint from which a run would resume is damaged, let the run resume from the newest intact one.

    Every file of the checkpoint is read completely; torch's files are archives with a checksum for each part.

    Returns:
        A note about the damage and the new step, or None if the newest checkpoint is intact, or if all are damaged.
    """
    trainer = config.trainer
    folder = Path(os.path.abspath(trainer.default_local_dir))
    tracker = folder / TRACKER
    if trainer.resume_mode != "auto" or not tracker.is_file() or not _can_be_checked(config):
        return None
    steps = sorted(int(each.name[12:]) for each in folder.glob("global_step_*") if each.name[12:].isdigit())
    recorded = tracker.read_text().strip()  # a killed run may leave this file empty, since verl writes it in place
    damage = f"{tracker} contains no step"
    if recorded.isdigit():
        damage = _damage(folder / f"global_step_{recorded}", config)
        steps = [step for step in steps if step < int(recorded)]
    if not damage:
        return None
    intact = next((step for step in reversed(steps) if not _damage(folder / f"global_step_{step}", config)), None)
    if intact is None:
        return None
    replace_file(tracker, str(intact))
    return f"{damage}: the run resumes from step {intact} instead, and repeats the steps after it"


def _can_be_checked(config: Any) -> bool:
    return bool(config.trainer.nnodes == 1 and config.actor_rollout_ref.actor.strategy.startswith("fsdp"))


def _damage(folder: Path, config: Any) -> str:
    """Return a description of a checkpoint's damage, or an empty string."""
    files = [folder / file for file in _files(config)]
    with ThreadPoolExecutor() as pool:
        return next(filter(None, pool.map(_damage_of_file, files)), "")


def _damage_of_file(file: Path) -> str:
    try:
        with ZipFile(file) as archive:
            part = archive.testzip()
    except FileNotFoundError:
        return f"there is no {file}"
    except Exception as error:  # noqa: BLE001 - a file that is not an archive may raise almost any error
        return f"{file} is damaged ({error})"
    return f"{file} is damaged (in {part})" if part else ""


@check("configuration", needs=Needs.VERL, at=("trainer", "doctor"))
def complete_checkpoint(case: RunCase) -> Iterator[ConfigError]:
    """The checkpoint from which the run would resume is complete."""
    config: Any = case.config
    if (resumed := _resumed(config.trainer)) is None:
        return
    key, folder = resumed
    if not folder.is_dir():
        yield ConfigError(key, f"there is no checkpoint {folder}", f"Restore it, {START_AGAIN}")
        return
    if not _can_be_checked(config):
        return
    missing = next((file for file in _files(config) if not (folder / file).is_file()), None)
    if missing is not None:
        shards = sorted((folder / missing).parent.glob(f"{missing.name.split('_')[0]}_*_rank_0.pt"))
        mismatch = f"; {shards[0].name} was written by another number of ranks" if shards else ""
        yield ConfigError(
            key,
            f"the checkpoint {folder} is incomplete: it has no {missing}{mismatch}",
            "Use the number of ranks that wrote it" if shards else f"Choose an earlier step, {START_AGAIN}",
        )


def _resumed(trainer: Any) -> tuple[str, Path] | None:
    """Return the key or file that names the checkpoint from which verl will resume, and the checkpoint's folder."""
    if trainer.resume_mode == "resume_path" and trainer.resume_from_path:
        return "trainer.resume_from_path", Path(os.path.abspath(trainer.resume_from_path))
    tracker = Path(os.path.abspath(trainer.default_local_dir)) / TRACKER
    if trainer.resume_mode != "auto" or not tracker.is_file():
        return None
    return str(tracker), tracker.with_name(f"global_step_{tracker.read_text().strip()}")


def _files(config: Any) -> Iterator[Path]:
    """Yield the files that verl will load: each rank's files, and the dataloader's state."""
    roles = [("actor", config.actor_rollout_ref.actor)]
    if needs_critic(config):
        roles.append(("critic", config.critic))
    for role, section in roles:
        parts = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
        for part in (parts[name] for name in section.checkpoint.load_contents if name in parts):
            for rank in range(config.trainer.n_gpus_per_node):
                yield Path(role) / f"{part}_world_size_{config.trainer.n_gpus_per_node}_rank_{rank}.pt"
    yield Path("data.pt")


def _is_merged_from(shards: Path, merged: Path) -> bool:
    """Whether the model was merged from these shards, which are rewritten if a run goes back to an earlier step."""
    if not merged.is_dir():
        return False
    merged_at = merged.stat().st_mtime
    return all(file.stat().st_mtime <= merged_at for file in shards.rglob("*") if file.is_file())


def _merge(shards: Path, target: Path, key: str) -> None:
    temporary, log = target.with_suffix(".tmp"), target.with_suffix(".log")
    backend = "fsdp" if (shards / "fsdp_config.json").is_file() else "megatron"
    command = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", backend]
    command += ["--local_dir", str(shards), "--target_dir", str(temporary)]
    try:
        with FileLock(target.with_suffix(".lock")):
            if _is_merged_from(shards, target):  # another process has merged the checkpoint in the meantime
                return
            for folder in (target, temporary):
                shutil.rmtree(folder, ignore_errors=True)
            with open(log, "wb") as output:
                done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                last = (log.read_text(errors="replace").strip() or "no output").splitlines()[-1]
                raise ConfigError(key, f"verl cannot merge {shards}: {last}", f"See {log}")
            if (temporary / "lora_adapter").is_dir():
                _apply_adapter(temporary)
            os.replace(temporary, target)
    except OSError as error:
        problem = f"the merged model of {shards} cannot be written: {error.strerror}"
        raise ConfigError(key, problem, "Copy the checkpoint to a folder you can write to") from error


def _apply_adapter(folder: Path) -> None:
    """Merge the LoRA adapter, which verl's merger stores next to the base model, into the model's weights."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    PeftModel.from_pretrained(base, folder / "lora_adapter").merge_and_unload().save_pretrained(folder)
    shutil.rmtree(folder / "lora_adapter")
