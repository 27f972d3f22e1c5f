"""Checks before Ray starts that the checkpoint from which a run will continue is complete.

verl silently starts from scratch if the newest checkpoint's folder is missing, and fails in a worker if one of its
files is. Only FSDP's files are checked, and only on a single node: each node may keep its own ranks' files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.preflight.case import RunCase
from agent_rl.preflight.check import Needs, check
from agent_rl.verl_adapter.inspection import needs_critic

TRACKER = "latest_checkpointed_iteration.txt"
OTHERWISE = "or start again with trainer.resume_mode=disable and another trainer.default_local_dir"


@check("configuration", needs=Needs.VERL, at=("trainer", "doctor"))
def complete_checkpoint(case: RunCase) -> Iterator[ConfigError]:
    """The checkpoint from which the run would continue is complete."""
    config: Any = case.config
    if (resumed := _folder(config.trainer)) is None:
        return
    key, folder = resumed
    if not folder.is_dir():
        yield ConfigError(key, f"there is no checkpoint {folder}", f"Restore it, {OTHERWISE}")
        return
    if config.trainer.nnodes > 1 or not config.actor_rollout_ref.actor.strategy.startswith("fsdp"):
        return
    missing = next((file for file in _files(config, needs_critic(config)) if not (folder / file).is_file()), None)
    if missing is not None:
        written = sorted((folder / missing).parent.glob(f"{missing.name.split('_')[0]}_*_rank_0.pt"))
        other = f" but {written[0].name}: another number of ranks wrote it" if written else ""
        yield ConfigError(
            key,
            f"the checkpoint {folder} is incomplete: it has no {missing}{other}",
            "Use as many ranks as wrote it" if written else f"Name an earlier step, {OTHERWISE}",
        )


def _folder(trainer: Any) -> tuple[str, Path] | None:
    """The checkpoint from which verl will resume, with the key that names it."""
    if trainer.resume_mode == "resume_path" and trainer.resume_from_path:
        return "trainer.resume_from_path", Path(os.path.abspath(trainer.resume_from_path))
    tracker = Path(os.path.abspath(trainer.default_local_dir)) / TRACKER
    if trainer.resume_mode != "auto" or not tracker.is_file():
        return None
    return str(tracker), tracker.with_name(f"global_step_{tracker.read_text().strip()}")


def _files(config: Any, use_critic: bool) -> Iterator[Path]:
    """The files that verl will load: each rank's, and the dataloader's state."""
    roles = [("actor", config.actor_rollout_ref.actor)]
    if use_critic:
        roles.append(("critic", config.critic))
    for role, section in roles:
        parts = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
        for part in (parts[name] for name in section.checkpoint.load_contents if name in parts):
            for rank in range(config.trainer.n_gpus_per_node):
                yield Path(role) / f"{part}_world_size_{config.trainer.n_gpus_per_node}_rank_{rank}.pt"
    yield Path("data.pt")
