"""Says in the log what a run is doing, for the terminal: what is started before the first step, and a step's parts."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_rl.cpu import switch

__all__ = ["PREFIX", "SAMPLING", "Stage", "compiles_kernels", "read_stage", "tell_parts", "tell_ray"]

PREFIX = "agent_rl stage: "
"""What such a line of the log begins with."""
SAMPLING = "sampling"
"""The first part of a step."""
ENGINE = "engine"
COMPILING = (
    "agent_rl: the engine compiles its kernels, as at every first start on a machine: 2 to 4 minutes (an estimate); "
    "they are kept in ~/.cache"
)


@dataclass(frozen=True)
class Stage:
    """The beginning of a part of a run.

    Attributes:
        what: the part, in a few words.
        step: of training; 0 before the first.
        time: seconds since the epoch.
    """

    what: str
    step: int
    time: float


def read_stage(line: str) -> Stage | None:
    """The stage that a line of the log tells; None for any other line."""
    if not line.startswith(PREFIX):
        return None
    try:
        found = json.loads(line.removeprefix(PREFIX))
        return Stage(str(found["what"]), int(found["step"]), float(found["time"]))
    except (ValueError, KeyError, TypeError):  # two processes have written into one line
        return None


def compiles_kernels(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the engine has compiled none of its kernels here yet; on a CPU it has none."""
    cache = Path(environ.get("TVM_FFI_CACHE_DIR") or "~/.cache/tvm-ffi").expanduser()
    return not switch.is_selected() and not any(cache.glob("sgl_kernel_jit_*"))


def tell_ray(module: ModuleType) -> None:
    """`verl.trainer.constants_ppo`: the function that verl calls right before it starts Ray."""
    module.get_ppo_ray_runtime_env = _told("Ray", module.get_ppo_ray_runtime_env)  # type: ignore[attr-defined]


def tell_parts(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: the parts of the trainer's start, and of each step."""
    trainer, servers = module.PPOTrainer, module.LLMServerManager
    for name, what in (
        ("_init_tokenizer", "rows"),
        ("_init_resource_pool_mgr", "model"),
        ("_load_checkpoint", "weights"),
    ):
        setattr(trainer, name, _told(what, getattr(trainer, name)))
    for name, what in (
        ("_validate", "validation"),
        ("step", SAMPLING),
        ("_compute_old_log_prob", "log-probs"),
        ("_update_actor", "update"),
        ("_save_checkpoint", "checkpoint"),
    ):
        setattr(trainer, name, _told_of_step(what, getattr(trainer, name)))
    create = vars(servers)["create"].__func__
    servers.create = classmethod(_told(ENGINE, create))
    original = trainer.init

    @functools.wraps(original)
    def init(self: Any) -> None:
        original(self)
        _tell("agent loops", 0)

    trainer.init = init


def _told(what: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that tells before it does its work."""

    @functools.wraps(original)
    def told(*args: Any, **kwargs: Any) -> Any:
        _tell(what, 0)
        if what == ENGINE and compiles_kernels():
            print(COMPILING, flush=True)
        return original(*args, **kwargs)

    return told


def _told_of_step(what: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A method of the trainer that tells its step as well."""

    @functools.wraps(original)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(what, self.global_steps)
        return original(self, *args, **kwargs)

    return told


def _tell(what: str, step: int) -> None:
    print(PREFIX + json.dumps({"what": what, "step": step, "time": round(time.time(), 2)}), flush=True)
