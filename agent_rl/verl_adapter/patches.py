"""Patches of verl 0.9.1 where it has no extension point; more are in `failures`, `late_scoring` and `agent_rl.cpu`.

Each function patches one module right after its import and says why. A test for each fails when the patch is no longer
needed. `check_version` refuses any other version of verl.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.rewards.watch import ComponentWatch
from agent_rl.settings import AgentRLSettings
from agent_rl.verl_adapter.algorithms import remax
from agent_rl.verl_adapter.failures import ERRORS_PARTITION, not_trained, reported, require_scored, require_working
from agent_rl.verl_adapter.mini_batches import trained_keys
from agent_rl.verl_adapter.survivors import SampleFate, finals, samples, session_of, share_metrics
from agent_rl.verl_adapter.trained_samples import counts

__all__ = [
    "VERL_VERSION",
    "check_version",
    "reference_pass",
    "rollouts",
    "separate_logging",
    "step_metrics",
    "tool_loading",
]

VERL_VERSION = "0.9.1"


def check_version(version: str) -> None:
    """Refuse a verl that the patches were not written for.

    Raises:
        ConfigError: naming both versions.
    """
    if version != VERL_VERSION:
        raise ConfigError(
            "verl", f"version {version} is installed, agent_rl extends {VERL_VERSION}", "Install agent-rl[train]"
        )


def reference_pass(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: switch the adapter off for the reference's log-probs only.

    With LoRA the reference is the policy without its adapter, and a flag on the batch says so. verl leaves the flag
    there: the critic is then run without its own adapter, or fails because it has none.
    """
    original = module.PPOTrainer._compute_ref_log_prob

    @functools.wraps(original)
    def compute(self: Any, batch: Any, metrics: dict[str, Any]) -> Any:
        result = original(self, batch, metrics)
        result.extra_info.pop("no_lora_adapter", None)
        return result

    module.PPOTrainer._compute_ref_log_prob = compute


def separate_logging(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_separate_async`: accept `flush=True` in a logger's call.

    With hybrid_engine=False verl calls its logger like print, which is a TypeError.
    """
    original = module.logger.info

    def info(*args: Any, flush: bool = False, **kwargs: Any) -> None:
        original(*args, **kwargs)

    module.logger.info = info


def tool_loading(module: ModuleType) -> None:
    """`verl.tools.tool_registry`: load tool YAML files with our loader.

    verl's loader knows one form of entry, and its errors for a broken file do not name the entry.
    """
    from agent_rl.verl_adapter import verl_tools

    module.initialize_tools_from_config = verl_tools.load  # type: ignore[attr-defined]


def step_metrics(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: log the reward's components with each training step.

    verl logs what a reward manager reports in validation only. Adds `agent/<key>` (mean over the step's trajectories),
    `agent/unscored` (number of the training's trajectories that failed since the last step), and share and size of what
    was trained on and of what was not. With ReMax, its baselines. A component with the same value for all trajectories
    of many steps is reported. A run in which too large a share fails is stopped.
    """
    original = module.PPOTrainer._compute_metrics

    @functools.wraps(original)
    def compute_metrics(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        original(self, batch, metrics, *args, **kwargs)
        keys = trained_keys(batch)
        infos = reported(module.tq, keys, batch.partition_id)
        self._agent_rl_reported = dict(zip(map(session_of, finals(keys)), infos, strict=True))  # for `rollouts`
        for key in dict.fromkeys(key for info in infos for key in info):
            values = [info[key] for info in infos if isinstance(info.get(key), int | float)]
            if values:
                metrics[f"agent/{key}"] = sum(values) / len(values)
        errors = (module.tq.kv_list(ERRORS_PARTITION) or {}).get(ERRORS_PARTITION, {})
        failed = [tag for tag in errors.values() if not tag["validate"]]
        tags = {key: tag for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding")}
        lost = [SampleFate("lost", tag["tokens"], tag["turns"]) for tag in failed]
        shares = share_metrics([*samples("kept", tags, infos), *lost, *not_trained])
        numbers = {"unscored": len(failed), "skipped_updates": 0, **counts, **shares}
        metrics.update({f"agent/{name}": value for name, value in numbers.items()})
        scored = len(infos) + len(not_trained)
        counts.clear()
        not_trained.clear()
        if errors:
            require_working(errors)
            module.tq.kv_clear(keys=list(errors), partition_id=ERRORS_PARTITION)
        unscored = [tag["error"] for tag in failed]
        for sentence in _watch(self).step(infos, unscored):
            print(f"agent_rl: {sentence}", flush=True)
        require_scored(self.config, scored, unscored)
        if self.config.algorithm.adv_estimator == remax.ESTIMATOR:
            metrics.update(remax.take_metrics(key.split("_")[0] for key in keys))

    module.PPOTrainer._compute_metrics = compute_metrics


def rollouts(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: write what the reward manager reports into the training's rollouts.

    verl writes it into those of a validation only. Without it nothing says whether the last turn was cut off. Rows that
    only fill up a batch, which verl writes as empty texts of reward 0, are left out.
    """
    original, log = module.PPOTrainer._dump_generations, module.PPOTrainer._log_rollout_data

    @functools.wraps(log)
    def log_rollout_data(self: Any, batch: Any, *args: Any, **kwargs: Any) -> None:
        log(self, batch.select_keys(trained_keys(batch)), *args, **kwargs)

    @functools.wraps(original)
    def dump(self: Any, *args: Any, **kwargs: Any) -> None:
        columns = kwargs.get("reward_extra_infos_dict", {})
        reported = getattr(self, "_agent_rl_reported", {})
        own = [reported.get(key.rpartition("_")[0], {}) for key in columns.get("uid", ())]
        for name in next(filter(None, own), {}):
            if name not in _OF_A_ROLLOUT:
                columns.setdefault(name, [each.get(name) for each in own])
        original(self, *args, **kwargs)

    module.PPOTrainer._dump_generations, module.PPOTrainer._log_rollout_data = dump, log_rollout_data


_OF_A_ROLLOUT = ("input", "output", "gts", "score", "step")
"""What verl writes of each sample itself."""


def _watch(trainer: Any) -> ComponentWatch:
    """The trainer's watch on the components of its reward."""
    if not hasattr(trainer, "_agent_rl_watch"):
        components = AgentRLSettings.from_config(trainer.config).reward.components
        trainer._agent_rl_watch = ComponentWatch(["correctness", *components])
    watch: ComponentWatch = trainer._agent_rl_watch
    return watch
