"""verl's trainer and its real loop without workers, for code that runs in forks (tests/forks.py).

With our plugin it is an AgentTrainer, with verl alone it is verl's own.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hydra
from omegaconf import OmegaConf
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import trainer_base

SET = ("actor_rollout_ref.rollout.name=sglang", "trainer.logger=[]", "trainer.val_before_train=false")


@functools.cache
def configuration() -> Any:
    """verl's, with which no logger is started."""
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", list(SET))
    OmegaConf.set_struct(config, False)
    return config


def make(mode: str = "sync", config: dict[str, Any] | None = None, **parts: Any) -> Any:
    """A trainer of this mode, by values of dotted keys, with these parts instead of those that `init` starts."""
    whole = copy.deepcopy(configuration())
    for key, value in {"trainer.v1.trainer_mode": mode, **(config or {})}.items():
        OmegaConf.update(whole, key, value)
    trainer = trainer_base.get_trainer_cls(mode)(whole)
    vars(trainer).update(parts)
    return trainer


def train(trainer: Any, update: Callable[[], None] = lambda: None, steps: int = 4) -> list[str]:
    """Run the trainer's `fit`, each of whose steps only calls `update`; the parts of the run, and how it ended."""
    done: list[str] = []

    def once(*_: Any) -> KVBatchMeta:
        update()
        done.append(f"step {trainer.global_steps}")
        return KVBatchMeta(partition_id="train", keys=["a_0_0"], tags=[{}])

    def note(what: str) -> Any:
        return lambda: done.append(f"{what} {trainer.global_steps}") or {"acc": 1.0}

    trainer_base.tq.kv_clear = trainer_base.tq.kv_list = lambda *_, **__: {}
    nothing: Any = lambda *_, **__: {}  # noqa: E731
    engines = SimpleNamespace(update_weights=nothing, sleep_replicas=nothing, abort_replicas=nothing)
    unused = dict.fromkeys(("prepare_step", "_compute_metrics", "_shutdown_dump_executor"), nothing)
    vars(trainer).update(unused, _step_once=once, _validate=note("validation"), _save_checkpoint=note("checkpoint"))
    vars(trainer).update(global_steps=0, steps_per_epoch=steps, total_training_steps=steps, checkpoint_manager=engines)
    vars(trainer).setdefault("train_dataloader", SimpleNamespace(state_dict=dict))
    try:
        trainer.fit(None)
    except Exception as error:
        done.append(f"{type(error).__name__}: {error}")
    return done
