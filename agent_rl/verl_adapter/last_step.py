"""Saves the last complete step of a run that stops early, and says which command goes on from there.

A run stops early at an error of agent_rl (after any other the trainer's state is unknown), and when it is asked to: a
file `stop` in its folder, which `agent-rl train` makes at Ctrl-C or SIGTERM. A step that is asked to be the last is
saved where verl saves, in the middle of its own loop. A validation is not waited for; what is saved after it, or after
an error, is saved as after `fit`. With several updates in a step (`mode=separate_async`), the weights that are saved
after an error may be some updates ahead of the step.
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
from agent_rl.verl_adapter.stalls import LateSyncError, LostProcessError, watched

__all__ = ["COMMAND", "STOP_FILE", "ask_while_waiting", "keep_command", "save_at_stop"]

COMMAND = "AGENT_RL_COMMAND"
"""Environment variable with the command line of the driver, for the trainer's process."""
STOP_FILE = "stop"
"""A file in the run's folder; the trainer writes into it, as JSON, the last step, its checkpoint and the command."""

logger = logging.getLogger(__name__)


class _StopRequestedError(Exception):
    """Ends a wait of the trainer; never leaves `fit`."""


def keep_command(module: ModuleType) -> None:
    """`verl.trainer.constants_ppo`: tell the trainer's process the command line of the driver."""
    module.PPO_RAY_RUNTIME_ENV["env_vars"].setdefault(COMMAND, Redactor(os.environ)(shlex.join(sys.orig_argv)))


@dataclass
class _Progress:
    """How far a run has come.

    `data` is the dataloader's state before the step that is being run; None while none is. `stopped`: whether the run
    has been asked to end after the step that is complete.
    """

    begun: int
    complete: int
    data: Any = None
    stopped: bool = False


def save_at_stop(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: save a checkpoint when `fit` ends early after a step."""
    trainer = module.PPOTrainer
    original_fit, original_step, original_validate = trainer.fit, trainer.step, trainer._validate

    @functools.wraps(original_step)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        progress = self._agent_rl_progress
        if progress.complete > progress.begun:  # there is something to save
            progress.data = self.train_dataloader.state_dict()
        _stop_if_asked(self)
        result = original_step(self, *args, **kwargs)
        progress.complete, progress.data = self.global_steps, None
        if _is_asked(self) and self.global_steps < self.total_training_steps:
            _make_last(self)
        return result

    @functools.wraps(original_validate)
    def validate(self: Any, *args: Any, **kwargs: Any) -> Any:
        progress = self._agent_rl_progress
        self.replay_buffer._agent_rl_poll = lambda: _stop_if_asked(self)
        try:
            return original_validate(self, *args, **kwargs)
        except _StopRequestedError:
            if progress.complete == progress.begun:
                raise
            return {}  # the step's own metrics are still to be logged
        finally:
            self.replay_buffer._agent_rl_poll = None

    @functools.wraps(original_fit)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        progress = self._agent_rl_progress = _Progress(self.global_steps, self.global_steps)
        _forget_answer(self)
        result = None
        try:
            result = original_fit(self, *args, **kwargs)
        except _StopRequestedError:
            progress.stopped = True
            _save_complete(module, self)
            self._shutdown_dump_executor()
        except LostProcessError as error:
            raise FatalError(f"{error}{_saved(module, self) if error.has_store else ''}") from error
        except LateSyncError as error:
            with watched(
                functools.partial(LateSyncError, error.limit_s), error.limit_s
            ):  # the trainer's workers may take part in the sync
                raise FatalError(f"{error}{_saved(module, self)}") from error
        except AgentRLError as error:
            kind = FatalError if isinstance(error, FatalError) else UnscoredError
            raise kind(f"{error}{_saved(module, self)}") from error
        if progress.stopped:
            _answer(self)
        return result

    trainer.step, trainer.fit, trainer._validate = step, fit, validate


def ask_while_waiting(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.replay_buffer`: let a validation look for the file again and again."""
    original = module.ReplayBuffer._sync_metadata_from_transfer_queue

    @functools.wraps(original)
    def sync(self: Any) -> None:
        if (poll := getattr(self, "_agent_rl_poll", None)) is not None:
            poll()
        original(self)

    module.ReplayBuffer._sync_metadata_from_transfer_queue = sync


def _stop_file(trainer: Any) -> Path | None:
    folder = OmegaConf.select(trainer.config, "agent_rl.run.folder")
    return Path(folder) / STOP_FILE if folder else None


def _forget_answer(trainer: Any) -> None:
    """Remove the answer of an earlier start, of a trainer that no launcher has started."""
    file = _stop_file(trainer)
    if file is not None and file.exists() and file.read_text():
        file.unlink()


def _is_asked(trainer: Any) -> bool:
    file = _stop_file(trainer)
    return file is not None and file.exists()


def _stop_if_asked(trainer: Any) -> None:
    """End a wait, unless the step that is complete is the last one anyway."""
    if trainer._agent_rl_progress.complete < trainer.total_training_steps and _is_asked(trainer):
        raise _StopRequestedError


def _make_last(trainer: Any) -> None:
    """Let verl's loop save the step that it is in, validate nothing, and end."""
    trainer._agent_rl_progress.stopped = True
    trainer.total_training_steps = trainer.global_steps
    trainer.config.trainer.save_freq, trainer.config.trainer.test_freq = 1, -1


def _answer(trainer: Any) -> None:
    """Tell the launcher where the run has ended."""
    complete = trainer._agent_rl_progress.complete
    folder = _checkpoint(trainer)
    is_saved = folder.is_dir()
    answer = {
        "step": complete,
        "checkpoint": str(folder) if is_saved else None,
        "command": _command(trainer.config, folder) if is_saved else None,
    }
    file = _stop_file(trainer)
    assert file is not None
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(json.dumps(answer) + "\n")
    os.replace(temporary, file)


def _checkpoint(trainer: Any) -> Path:
    """The folder of the checkpoint of the step that is complete."""
    progress = trainer._agent_rl_progress
    return Path(trainer.config.trainer.default_local_dir).absolute() / f"global_step_{progress.complete}"


def _saved(module: ModuleType, trainer: Any) -> str:
    """Save the last complete step, and say what was saved and how the run goes on."""
    progress = trainer._agent_rl_progress
    if progress.complete == progress.begun:  # the same command begins there again
        return ""
    try:
        _save_complete(module, trainer)
    except Exception:  # of verl or the file system; the error that stops the run is raised all the same
        logger.exception("no checkpoint of step %d could be written", progress.complete)
        return f". Step {progress.complete} is complete, but its checkpoint could not be written (see above)"
    folder = _checkpoint(trainer)
    command = _command(trainer.config, folder)
    return f". Step {progress.complete} is saved in {folder}: go on from there, after a correction, with: {command}"


def _save_complete(module: ModuleType, trainer: Any) -> None:
    """Save the last complete step of this start, unless verl has."""
    progress = trainer._agent_rl_progress
    tracker = _checkpoint(trainer).with_name("latest_checkpointed_iteration.txt")
    is_saved = tracker.is_file() and tracker.read_text() == str(progress.complete)
    if progress.complete > progress.begun and not is_saved:
        _save(module, trainer, progress)


def _save(module: ModuleType, trainer: Any, progress: _Progress) -> None:
    if progress.data is not None or getattr(trainer.replay_buffer, "sampling", False):  # otherwise the engines sleep
        _make_room(trainer)
    if progress.data is not None and trainer.trainer_mode == "sync":  # the other modes save what is in flight
        state = progress.data
        trainer.train_dataloader = SimpleNamespace(state_dict=lambda: state)
    for partition in (ERRORS_PARTITION, "val"):  # asynchronous modes would restore them: stop again, or train them
        left = (module.tq.kv_list(partition) or {}).get(partition, {})
        if left:
            module.tq.kv_clear(keys=list(left), partition_id=partition)
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
