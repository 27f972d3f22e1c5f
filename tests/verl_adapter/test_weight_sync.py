"""A weight sync that never ends stops the run, with the last complete step saved."""

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import FatalError
from agent_rl.verl_adapter import last_step, weight_sync

LIMIT_S = 0.2


def stalled(*_: Any) -> None:
    time.sleep(60)


class Trainer:
    """As much of verl's as a run of two steps needs, whose second sync stalls."""

    trainer_mode = "sync"

    def __init__(self, folder: Path, can_save: bool) -> None:
        run = {"folder": str(folder), "weight_sync_timeout_s": LIMIT_S}
        trainer = {"default_local_dir": str(folder), "resume_mode": "auto"}
        self.config = OmegaConf.create({"agent_rl": {"run": run}, "trainer": trainer})
        self.global_steps, self.total_training_steps, self.saved, self.can_save = 0, 9, list[int](), can_save
        self.train_dataloader = SimpleNamespace(state_dict=dict)
        self.replay_buffer = SimpleNamespace()
        self.checkpoint_manager = SimpleNamespace(update_weights=lambda step: None if step == 1 else stalled())

    def step(self) -> None: ...

    def _validate(self) -> None: ...

    def _save_checkpoint(self) -> None:
        if not self.can_save:
            stalled()
        self.saved.append(self.global_steps)

    def fit(self) -> None:
        for self.global_steps in (1, 2):
            self.step()
            self.checkpoint_manager.update_weights(self.global_steps)


@pytest.mark.parametrize("can_save", [True, False])
def test_a_stalled_sync_ends_the_run_and_names_the_issue_and_the_limit(tmp_path: Path, can_save: bool) -> None:
    cls = type("PPOTrainer", (Trainer,), {})
    module: Any = SimpleNamespace(PPOTrainer=cls, tq=SimpleNamespace(kv_list=lambda _: None))
    weight_sync.limit_syncs(module)
    last_step.save_at_stop(module)
    trainer, before = cls(tmp_path, can_save), signal.getsignal(signal.SIGALRM)
    with pytest.raises(FatalError, match=rf"weight_sync_timeout_s={LIMIT_S} .*verl/issues/7990") as caught:
        trainer.fit()
    assert trainer.saved == [2] * can_save
    assert ("Step 2 is saved in" if can_save else "its checkpoint could not be written") in str(caught.value)
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)[0]) == (before, 0)


def test_a_sync_within_the_limit_is_left_alone() -> None:
    with weight_sync.within(LIMIT_S, FatalError("late")):
        pass
    time.sleep(1.5 * LIMIT_S)
