"""Ends a run early if it would hang, if agent_rl raises an error, or if the user requests it.

- verl never checks whether its agent-loop workers, reward workers and TransferQueue processes are alive, although the
  kernel kills large processes first when memory runs out. If a reward worker dies, its share of the trajectories stays
  unscored in every step; if a TransferQueue process dies, stored trajectories are lost. In `mode=colocate_async`, a
  weight sync can deadlock (verl#7990).
- A `stop` file in the run's folder requests an early end; `agent-rl train` creates the file on Ctrl-C or SIGTERM.

When a run ends early, the last complete step is saved, and the command that resumes the run is printed. After an error
from outside agent_rl nothing is saved, because the trainer's state is unknown. verl's loop saves the last step of a
stopped run in the usual place, without waiting for a validation. With several updates per step (`mode=separate_async`),
the weights saved after an error may be a few updates ahead of the step.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf

from agent_rl.errors import AgentRLError, FatalError, UnscoredError
from agent_rl.work.parts import replace_file

COMMAND = "AGENT_RL_COMMAND"
"""Environment variable with the driver's command line, for the trainer's process."""
STOP_FILE = "stop"
"""A file in the run's folder, to which the trainer writes the last step, its checkpoint and the command as JSON."""
INTERVAL_S = 5.0
"""Seconds between checks, each of which takes 1 ms. Ray's public API for listing actors needs Ray's dashboard."""
SIGNAL = signal.SIGUSR1
"""The signal that interrupts the trainer while it waits."""
_CAUSES = {"OUT_OF_MEMORY": "it ran out of memory", "NODE_DIED": "its node was lost"}
"""Ray's names for causes of a process's death, and what each name means."""
_WATCHED = re.compile("AgentLoopWorker|RewardLoopWorker|(?P<store>TransferQueueController|StorageUnit)")

logger = logging.getLogger(__name__)


class _StopRequestedError(Exception):
    """Interrupts the trainer while it waits; `LastStep` catches this exception."""


class StallError(FatalError):
    """The run would hang, because a process has died or a weight sync takes too long.

    Args:
        message: what happened, and the cause if Ray reports it.
        has_store: whether the trajectories can still be read.
        save_within_s: maximum number of seconds for saving, which may hang for the same reason; None means no limit.
    """

    def __init__(self, message: str, has_store: bool = True, save_within_s: float | None = None) -> None:
        super().__init__(message)
        self.has_store, self.save_within_s = has_store, save_within_s


@contextmanager
def stalls_raised(trainer: Any, sync_limit_s: float) -> Iterator[None]:
    """Raise an error in this block, the trainer's `fit`, when a process has died or a weight sync takes too long."""
    for name in ("checkpoint_manager", "standalone_checkpoint_manager"):
        if (manager := getattr(trainer, name, None)) is not None:
            manager.update_weights = functools.partial(_limited, sync_limit_s, manager.update_weights)
    from ray.exceptions import RayActorError

    with watched(_lost, INTERVAL_S):
        try:
            yield
        except (RayActorError, FatalError) as error:  # a process may have died since the last check
            if not isinstance(error, StallError) and (lost := _lost()):
                raise lost from error
            raise


def _limited(limit_s: float, sync: Any, *args: Any, **kwargs: Any) -> Any:
    with watched(lambda: _late(limit_s), limit_s):
        return sync(*args, **kwargs)


def _late(limit_s: float) -> StallError:
    return StallError(
        f"the weight sync has taken longer than agent_rl.run.weight_sync_timeout_s={limit_s:g} seconds. If many "
        "requests were open, verl is deadlocked (https://github.com/verl-project/verl/issues/7990). Lower "
        "trainer.v1.colocate_async.num_warmup_batches, set mode=sync, or raise the limit",
        save_within_s=limit_s,  # saving may hang too, if the trainer's workers take part in the sync
    )


@contextmanager
def watched(look: Callable[[], Exception | None], interval_s: float) -> Iterator[None]:
    """Raise the error that `look` returns inside this block, which must run in the main thread; blocks may be nested.

    Args:
        look: called in another thread; returns the error to raise, or None.
        interval_s: seconds to wait before each call of `look`.
    """
    errors: list[Exception] = []
    done = threading.Event()

    def stop(*args: Any) -> None:
        if errors and not done.is_set():
            done.set()
            raise errors[0]
        if callable(before):  # the signal is meant for an outer block
            before(*args)

    def watch() -> None:
        while not done.wait(interval_s):
            if (error := look()) is not None:
                errors.append(error)
                signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)
                return

    before = signal.getsignal(SIGNAL)
    signal.signal(SIGNAL, stop)
    thread = threading.Thread(target=watch, name="agent_rl_watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(INTERVAL_S)  # a signal after this block would kill the process
        signal.signal(SIGNAL, before)


def _lost() -> StallError | None:
    """Return an error for the first of this job's watched processes that has died, or None."""
    import ray
    from ray._private.state import actors

    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    for actor in actors(job_id=job, actor_state_name="DEAD").values():
        if watched_process := _WATCHED.search(actor["ActorClassName"]):
            found = (cause for reason, cause in _CAUSES.items() if reason in str(actor["DeathCause"]))
            cause = next(found, "it crashed, or was killed (out of memory?)")
            message = f"the {actor['ActorClassName']} process (pid {actor['Pid']}) has died: {cause}"
            return StallError(message, has_store=watched_process["store"] is None)
    return None


class LastStep:
    """Tracks the last complete step of a run, and saves this step if the run ends early.

    Args:
        trainer: the run's trainer.

    Attributes:
        saved_step: the last step that this run has saved; the folder may also contain checkpoints of earlier runs.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.saved_step = 0
        self._begun = self._complete = 0
        self._data: Any = None
        """The dataloader's state before the current step, or None between steps."""
        self._stopped = False
        """Whether the run has been asked to end after the completed step."""
        folder = OmegaConf.select(trainer.config, "agent_rl.run.folder")
        self._stop_file = Path(folder) / STOP_FILE if folder else None

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Save the last complete step if this block, the trainer's `fit`, ends early."""
        self._begun = self._complete = self._trainer.global_steps
        file = self._stop_file
        if file is not None and file.exists() and file.read_text():  # left by an earlier run without a launcher
            file.unlink()
        try:
            yield
        except _StopRequestedError:
            self._stopped = True
            self._save_complete()
            self._trainer._shutdown_dump_executor()
        except AgentRLError as error:
            kind = FatalError if isinstance(error, FatalError) else UnscoredError
            raise kind(f"{error}{self._saved(error)}") from error
        if self._stopped:
            self._answer()

    def begin(self) -> None:
        """Record that a step starts, unless the run has been asked to stop."""
        if self._complete > self._begun:  # a step has been completed since the start
            self._data = self._trainer.train_dataloader.state_dict()
        self._stop_if_asked()

    def complete(self) -> None:
        """Record that the step is complete, and make it the run's last step if the run has been asked to stop.

        verl's loop then saves the current step, skips validation, and ends.
        """
        trainer = self._trainer
        self._complete, self._data = trainer.global_steps, None
        if self._is_asked() and trainer.global_steps < trainer.total_training_steps:
            self._stopped = True
            trainer.total_training_steps = trainer.global_steps
            trainer.config.trainer.save_freq, trainer.config.trainer.test_freq = 1, -1

    @contextmanager
    def ends_validation(self) -> Iterator[None]:
        """Interrupt this block, a validation, when the run is asked to stop."""
        self._trainer.replay_buffer.poll = self._stop_if_asked
        try:
            yield
        except _StopRequestedError:
            if self._complete == self._begun:
                raise
        finally:
            self._trainer.replay_buffer.poll = None

    def _is_asked(self) -> bool:
        return self._stop_file is not None and self._stop_file.exists()

    def _stop_if_asked(self) -> None:
        """Interrupt the trainer if the run has been asked to stop, unless the run's last step is already complete."""
        if self._complete < self._trainer.total_training_steps and self._is_asked():
            raise _StopRequestedError

    def _answer(self) -> None:
        """Write the last step and its checkpoint to the stop file, for the launcher."""
        folder = self._checkpoint()
        is_saved = folder.is_dir()
        answer = {
            "step": self._complete,
            "checkpoint": str(folder) if is_saved else None,
            "command": _command(self._trainer.config, folder) if is_saved else None,
        }
        assert self._stop_file is not None
        replace_file(self._stop_file, json.dumps(answer) + "\n")

    def _checkpoint(self) -> Path:
        """Return the checkpoint folder of the last complete step."""
        return Path(self._trainer.config.trainer.default_local_dir).absolute() / f"global_step_{self._complete}"

    def _saved(self, error: AgentRLError) -> str:
        """Save the last complete step, and return a sentence about what was saved and how to resume."""
        if not getattr(error, "has_store", True) or self._complete == self._begun:  # nothing to save
            return ""
        limit_s = getattr(error, "save_within_s", None)
        limit: Any = watched(lambda: _late(limit_s), limit_s) if limit_s else nullcontext()
        try:
            with limit:
                self._save_complete()
        except Exception:  # verl or the file system failed; the error that stops the run is still raised
            logger.exception("no checkpoint could be written for step %d", self._complete)
            return f". Step {self._complete} is complete, but its checkpoint could not be written (see above)"
        folder = self._checkpoint()
        command = _command(self._trainer.config, folder)
        return f". Step {self._complete} is saved in {folder}: fix the problem, and resume with: {command}"

    def _save_complete(self) -> None:
        """Save the last step completed since the run was started, unless verl has already saved it."""
        if self._complete > self._begun and self._complete != self.saved_step:
            self._save()

    def _save(self) -> None:
        trainer = self._trainer
        _make_room(trainer)
        if self._data is not None and trainer.trainer_mode == "sync":  # other modes save the running episodes too
            state = self._data
            trainer.train_dataloader = SimpleNamespace(state_dict=lambda: state)
        trainer.global_steps = self._complete
        trainer._save_checkpoint()


def _make_room(trainer: Any) -> None:
    """Free the memory of the engines on the trainer's GPUs, as verl does before an update, unless they sleep."""
    if hasattr(trainer, "switch_to_trainer"):
        if trainer.current_mode.value == "rollout":
            trainer.switch_to_trainer()
    elif trainer.are_engines_awake:
        trainer.checkpoint_manager.abort_replicas()
        trainer.checkpoint_manager.sleep_replicas()


def _command(config: Any, folder: Path) -> str:
    """Return the command that resumes the run from this checkpoint."""
    run = Path(OmegaConf.select(config, "agent_rl.run.folder") or ".") / "run.json"
    command = shlex.join(json.loads(run.read_text())["command"]) if run.is_file() else os.environ.get(COMMAND, "")
    if config.trainer.resume_mode == "auto":
        return command
    return f"{command} trainer.resume_mode=resume_path trainer.resume_from_path={shlex.quote(str(folder))}"
