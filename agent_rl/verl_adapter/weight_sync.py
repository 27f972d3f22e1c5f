"""Stops a run whose engine waits too long for new weights: verl#7990 is a deadlock in `mode=colocate_async`."""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from agent_rl.errors import FatalError
from agent_rl.settings import AgentRLSettings

__all__ = ["LateSyncError", "limit_syncs", "within"]


class LateSyncError(FatalError):
    """A weight sync has taken longer than `agent_rl.run.weight_sync_timeout_s`."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(
            f"the weight sync has taken longer than agent_rl.run.weight_sync_timeout_s={limit_s:g} seconds. With many "
            "requests outstanding this is a deadlock of verl (https://github.com/verl-project/verl/issues/7990): start "
            "fewer (trainer.v1.colocate_async.num_warmup_batches), set mode=sync, or raise the limit"
        )
        self.limit_s = limit_s


@contextmanager
def within(limit_s: float, error: Exception) -> Iterator[None]:
    """Raise the error in this thread, which must be the main one, when the block has taken so many seconds."""

    def stop(*_: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_syncs(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: limit the seconds of each sync of a running trainer."""
    original = module.PPOTrainer.fit

    @functools.wraps(original)
    def fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        limit_s = AgentRLSettings.from_config(self.config).run.weight_sync_timeout_s
        for name in ("checkpoint_manager", "standalone_checkpoint_manager"):
            if (manager := getattr(self, name, None)) is not None:
                manager.update_weights = functools.partial(_limited, limit_s, manager.update_weights)
        return original(self, *args, **kwargs)

    module.PPOTrainer.fit = fit


def _limited(limit_s: float, sync: Any, *args: Any, **kwargs: Any) -> Any:
    with within(limit_s, LateSyncError(limit_s)):
        return sync(*args, **kwargs)
