"""verl's trainer and its real loop without workers, for code that runs in forks (tests/support/forks.py).

With our plugin it is an AgentTrainer, with verl alone it is verl's own.
"""

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


def nothing(*_: Any, **__: Any) -> dict[str, Any]:
    return {}


def train(
    trainer: Any,
    update: Callable[[], object] = nothing,
    sync: Any = nothing,
    save: Callable[[], object] = nothing,
    sleep: Callable[[], object] = nothing,
    log: Any = nothing,
) -> list[str]:
    """What the trainer's `fit` does in four steps, and the error that ends it; a part costs only what is given here."""
    done: list[str] = []

    def part(name: str, work: Callable[[], object] = nothing) -> Callable[..., Any]:
        def run(*_: Any) -> Any:
            work()
            done.append(f"{name} {trainer.global_steps}")
            return {"acc": 1.0} if name == "validation" else KVBatchMeta(["a_0_0"], [{}], "train")

        return run

    trainer_base.tq.kv_clear = trainer_base.tq.kv_list = nothing
    engines = SimpleNamespace(update_weights=sync, sleep_replicas=sleep, abort_replicas=nothing)
    parts = {
        "_step_once": part("step", update),
        "_validate": part("validation"),
        "_save_checkpoint": part("checkpoint", save),
    }
    unused = dict.fromkeys(("prepare_step", "_shutdown_dump_executor"), nothing)
    unused["_compute_metrics"] = log
    vars(trainer).update(parts, **unused, checkpoint_manager=engines, train_dataloader=SimpleNamespace(state_dict=dict))
    vars(trainer).update(global_steps=0, steps_per_epoch=4, total_training_steps=4)
    try:
        trainer.fit(None)
    except Exception as error:
        done.append(f"{type(error).__name__}: {error}")
    return done
