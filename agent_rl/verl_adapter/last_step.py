"""Saves the last complete step of a run that agent_rl stops, and says which command goes on from there.

verl saves every `trainer.save_freq` steps; what was trained since would be lost when a reward's code raises, or too
large a share goes unscored. Only errors of agent_rl are followed by this: after any other the trainer's state is
unknown. With several updates in a step (`mode=separate_async`), the weights may be some updates ahead of the step.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

from agent_rl.errors import AgentRLError, FatalError, UnscoredError
from agent_rl.secrets import Redactor
from agent_rl.verl_adapter.failures import ERRORS_PARTITION

__all__ = ["COMMAND", "keep_command", "save_at_stop"]

COMMAND = "AGENT_RL_COMMAND"
"""Environment variable with the command line of the driver, for the trainer's process."""

logger = logging.getLogger(__name__)


def keep_command(module: ModuleType) -> None:
    """`verl.trainer.constants_ppo`: tell the trainer's process the command line of the driver."""
    module.PPO_RAY_RUNTIME_ENV["env_vars"].setdefault(COMMAND, Redactor(os.environ)(shlex.join(sys.orig_argv)))


@dataclass
class _Progress:
    """How far a run has come.

    `data` is the dataloader's state before the step that is being run; None while none is.
    """

    begun: int
    complete: int
    data: Any = None


def save_at_stop(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: save a checkpoint when an error of agent_rl ends `fit` after a step."""
    original_fit, original_step = module.PPOTrainer.fit, module.PPOTrainer.step

    @functools.wraps(original_step)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        progress = self._agent_rl_progress
        if progress.complete > progress.begun:  # there is something to save
            progress.data = self.train_dataloader.state_dict()
        result = original_step(self, *args, **kwargs)
        progress.complete, progress.data = self.global_steps, None
        return result

    @functools.wraps(original_fit)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._agent_rl_progress = _Progress(self.global_steps, self.global_steps)
        try:
            return original_fit(self, *args, **kwargs)
        except AgentRLError as error:
            kind = FatalError if isinstance(error, FatalError) else UnscoredError
            raise kind(f"{error}{_saved(module, self)}") from error

    module.PPOTrainer.step, module.PPOTrainer.fit = step, fit


def _saved(module: ModuleType, trainer: Any) -> str:
    """Save the last complete step, and say what was saved and how the run goes on."""
    progress = trainer._agent_rl_progress
    if progress.complete == progress.begun:  # the same command begins there again
        return ""
    folder = Path(trainer.config.trainer.default_local_dir).absolute() / f"global_step_{progress.complete}"
    tracker = folder.with_name("latest_checkpointed_iteration.txt")
    try:
        if not (tracker.is_file() and tracker.read_text() == str(progress.complete)):
            _save(module, trainer, progress)
    except Exception:  # of verl or the file system; the error that stops the run is raised all the same
        logger.exception("no checkpoint of step %d could be written", progress.complete)
        return f". Step {progress.complete} is complete, but its checkpoint could not be written (see above)"
    command = _command(trainer.config, folder)
    return f". Step {progress.complete} is saved in {folder}: go on from there, after a correction, with: {command}"


def _save(module: ModuleType, trainer: Any, progress: _Progress) -> None:
    if progress.data is None or getattr(trainer.replay_buffer, "sampling", False):  # otherwise the engines sleep
        _make_room(trainer)
    if progress.data is not None and trainer.trainer_mode == "sync":  # the other modes save what is in flight
        state = progress.data
        trainer.train_dataloader = SimpleNamespace(state_dict=lambda: state)
    failed = (module.tq.kv_list(ERRORS_PARTITION) or {}).get(ERRORS_PARTITION, {})
    if failed:  # asynchronous modes would restore them, and stop again
        module.tq.kv_clear(keys=list(failed), partition_id=ERRORS_PARTITION)
    trainer.global_steps = progress.complete
    trainer._save_checkpoint()


def _make_room(trainer: Any) -> None:
    """Take the engines that share the trainer's GPUs out of its memory, as verl does before an update."""
    if hasattr(trainer, "switch_to_trainer"):
        trainer.switch_to_trainer()
        return
    trainer.checkpoint_manager.abort_replicas()
    trainer.checkpoint_manager.sleep_replicas()


def _command(config: Any, folder: Path) -> str:
    """The command that started the run, which continues it."""
    run = Path(OmegaConf.select(config, "agent_rl.run.folder") or ".") / "run.json"
    command = shlex.join(json.loads(run.read_text())["command"]) if run.is_file() else os.environ.get(COMMAND, "")
    if config.trainer.resume_mode == "auto":
        return command
    return f"{command} trainer.resume_mode=resume_path trainer.resume_from_path={shlex.quote(str(folder))}"
