"""The few places where verl 0.9.1 offers no extension point, changed here and nowhere else.

Each function patches one module right after it was imported and says why. A test for each fails when the patch is no
longer needed. All of them are guarded by the version of verl that they were written for.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any
from uuid import uuid4

from hydra.errors import InstantiationException

from agent_rl.algorithms import remax
from agent_rl.backend import cpu, local_reward, resume, reward_model
from agent_rl.errors import ConfigError, FatalError, UnscoredError, did_you_mean
from agent_rl.loops.user import load_user
from agent_rl.rewards.compose import require_limits
from agent_rl.settings import AgentRLSettings
from agent_rl.tools import load_tools

__all__ = [
    "ERRORS_PARTITION",
    "VERL_VERSION",
    "check_version",
    "early_checks",
    "error_stops",
    "filter_limit",
    "gloo_process_group",
    "reference_pass",
    "separate_logging",
    "session_errors",
    "step_metrics",
    "tool_loading",
    "value_head_attention",
]

VERL_VERSION = "0.9.1"

ERRORS_PARTITION = "agent_rl_errors"
"""TransferQueue partition through which workers tell the trainer of failed trajectories: one tag for each."""


def check_version(version: str) -> None:
    """Refuse a verl that the patches were not written for.

    Raises:
        ConfigError: naming both versions.
    """
    if version != VERL_VERSION:
        raise ConfigError(
            "verl", f"version {version} is installed, agent_rl extends {VERL_VERSION}", "Install agent-rl[train]"
        )


def gloo_process_group(module: ModuleType) -> None:
    """`verl.utils.distributed`: on a CPU the backend must be plain "gloo".

    verl builds "cpu:gloo,<device>:<backend>", which names the device cpu twice; torch rejects that.
    """
    original = module.initialize_global_process_group_ray

    @functools.wraps(original)
    def initialize(timeout_second: int | None = None, backend: str | None = None) -> Any:
        return original(timeout_second=timeout_second, backend="gloo")

    module.initialize_global_process_group_ray = initialize  # type: ignore[attr-defined]


def value_head_attention(module: ModuleType) -> None:
    """`verl.utils.model`: no flash attention for the critic on a CPU; verl asks for it whatever the config says."""

    def load(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = load  # type: ignore[attr-defined]


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
    """`verl.trainer.ppo.v1.trainer_separate_async`: log the message that hybrid_engine=False leads to.

    verl passes `flush=True` to its logger, as if it were print, which is a TypeError.
    """
    original = module.logger.info

    def info(*args: Any, flush: bool = False, **kwargs: Any) -> None:
        original(*args, **kwargs)

    module.logger.info = info


def tool_loading(module: ModuleType) -> None:
    """`verl.tools.tool_registry`: load tool YAML files with our loader.

    verl's knows one form of entry, takes an instance for each class as it is, and answers a broken file with whatever
    exception came first.
    """
    from agent_rl.loops import verl_tools

    module.initialize_tools_from_config = verl_tools.load  # type: ignore[attr-defined]


def early_checks(module: ModuleType) -> None:
    """`verl.utils.config`: check our section and the tool file where verl checks its configuration, before Ray starts.

    Both are read by workers otherwise, a minute later and on every node.
    """
    original = module.validate_config

    @functools.wraps(original)
    def validate(config: Any, use_reference_policy: bool, use_critic: bool) -> None:
        settings = AgentRLSettings.from_config(config)
        if cpu.is_selected():
            cpu.check(config)
        require_limits(settings.reward, config.data.max_response_length)
        remax.check(config)
        load_user(settings.user_sim.user, settings.user_sim.config)
        if path := config.actor_rollout_ref.rollout.multi_turn.tool_config_path:
            load_tools(_resolved(path))
        reward_model.check(config.reward)
        local_reward.check(config.reward)
        original(config, use_reference_policy, use_critic)
        resume.check(config, use_critic)

    module.validate_config = validate  # type: ignore[attr-defined]


def session_errors(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.agent_loop_tq`: tell the trainer why a trajectory failed.

    verl logs the error in the worker and marks the group; nobody counts it, and a wrong configuration fails one group
    after the other instead of stopping the run.
    """
    original = module._settle_session_tasks

    @functools.wraps(original)
    async def settle(tasks: list[asyncio.Task[Any]]) -> list[BaseException]:
        errors: list[BaseException] = await original(tasks)
        for error in errors:
            tag = {"error": f"{type(error).__name__}: {_reason(error)}", "fatal": _is_fatal(error)}
            await module.tq.async_kv_put(key=uuid4().hex, partition_id=ERRORS_PARTITION, tag=tag)
        return errors

    module._settle_session_tasks = settle  # type: ignore[attr-defined]


def error_stops(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.replay_buffer`: stop at a fatal error, and say why when every trajectory failed.

    The asynchronous buffer replaces failed groups for ever; it stops when twice the batch failed and no group finished.
    """
    original_sync = module.ReplayBuffer._sync_metadata_from_transfer_queue
    original_wait = module.ReplayBufferAsync.wait_for_sampleable
    original_evict = module.ReplayBufferAsync._evict_terminal_groups

    @functools.wraps(original_sync)
    def sync(self: Any) -> None:
        original_sync(self)
        for tag in self.partitions.get(ERRORS_PARTITION, {}).values():
            if tag.get("fatal"):
                raise FatalError(tag["error"])

    @functools.wraps(original_wait)
    def wait(self: Any, global_steps: int, partition_id: str, target_count: int) -> Any:
        self._hopeless, self._failed_in_a_row = 2 * target_count, 0
        return original_wait(self, global_steps, partition_id, target_count)

    @functools.wraps(original_evict)
    def evict(self: Any, global_steps: int, partition_id: str, reasons: Any) -> Any:
        failed = len(reasons[2])
        self._failed_in_a_row = 0 if self.finished_keys[partition_id] else self._failed_in_a_row + failed
        if failed and self._failed_in_a_row >= self._hopeless:
            raise UnscoredError(_nothing_usable(self, f"{self._failed_in_a_row} groups failed in a row"))
        return original_evict(self, global_steps, partition_id, reasons)

    module.ReplayBuffer._sync_metadata_from_transfer_queue = sync
    module.ReplayBufferAsync.wait_for_sampleable = wait
    module.ReplayBufferAsync._evict_terminal_groups = evict
    for buffer in (module.ReplayBuffer, module.ReplayBufferAsync):
        buffer.sample = _explained(buffer.sample)


def step_metrics(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: log the reward's components with each training step.

    verl logs what a reward manager reports in validation only. Adds `agent/<key>` (mean over the step's trajectories)
    and `agent/unscored` (number of trajectories that failed since the last step). With ReMax, its baselines.
    """
    original = module.PPOTrainer._compute_metrics

    @functools.wraps(original)
    def compute_metrics(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        original(self, batch, metrics, *args, **kwargs)
        keys = [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]
        data = module.tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        infos = [fields.get("reward_extra_info", {}) for fields in data.pop("extra_fields").tolist()]
        for key in infos[0]:
            values = [info[key] for info in infos if isinstance(info.get(key), int | float)]
            if values:
                metrics[f"agent/{key}"] = sum(values) / len(values)
        failed = list((module.tq.kv_list(ERRORS_PARTITION) or {}).get(ERRORS_PARTITION, {}))
        metrics["agent/unscored"] = len(failed)
        if failed:
            module.tq.kv_clear(keys=failed, partition_id=ERRORS_PARTITION)
        if self.config.algorithm.adv_estimator == remax.ESTIMATOR:
            metrics.update(remax.take_metrics(key.split("_")[0] for key in keys))

    module.PPOTrainer._compute_metrics = compute_metrics


def filter_limit(module: ModuleType) -> None:
    """`verl.trainer.ppo.v1.trainer_base`: obey `algorithm.filter_groups.max_num_gen_batches`, which v1 ignores.

    Without it a run whose groups all agree (a policy that solves nothing, or everything) samples for ever.
    """
    original_build = module.PPOTrainer._build_replay_buffer

    @functools.wraps(original_build)
    def build(self: Any) -> Any:
        buffer = original_build(self)
        groups = self.config.algorithm.filter_groups
        if groups.enable and groups.max_num_gen_batches > 0:
            limit = groups.max_num_gen_batches * self.config.data.train_batch_size
            buffer._evict_terminal_groups = _limited(buffer._evict_terminal_groups, limit)
        return buffer

    module.PPOTrainer._build_replay_buffer = build


def _limited(evict: Callable[..., Any], limit: int) -> Callable[..., Any]:
    """The replay buffer's eviction, which stops the run when one step has replaced more than so many groups."""
    replaced: Counter[int] = Counter()

    def limited(global_steps: int, *args: Any, **kwargs: Any) -> Any:
        evicted = evict(global_steps, *args, **kwargs)
        replaced[global_steps] += evicted[2]
        if replaced[global_steps] > limit:
            raise FatalError(
                f"step {global_steps} has replaced {replaced[global_steps]} groups whose samples all got the same "
                "reward: choose problems that the policy solves now and then, or raise "
                "algorithm.filter_groups.max_num_gen_batches"
            )
        return evicted

    return limited


def _resolved(path: str) -> str:
    """The path as verl's workers will find it; an unknown one as it is, for our loader's message."""
    from verl.utils.import_utils import resolve_config_path

    try:
        return str(resolve_config_path(path))
    except FileNotFoundError:
        return path


def _explained(original: Callable[..., Any]) -> Callable[..., Any]:
    """A replay buffer's `sample` that says why there is nothing."""

    @functools.wraps(original)
    def sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            batch, metrics = original(self, *args, **kwargs)
        except RuntimeError as error:  # verl's for training; in validation it goes on with an empty batch
            if "no materializable trajectories" not in str(error):
                raise
            raise UnscoredError(_nothing_usable(self, error)) from error
        if not batch.keys:
            raise UnscoredError(_nothing_usable(self, "every trajectory failed"))
        return batch, metrics

    return sample


def _nothing_usable(buffer: Any, problem: object) -> str:
    tags = list(buffer.partitions.get(ERRORS_PARTITION, {}).values())
    last = f"; {len(tags)} failed, the last with: {tags[-1].get('error')}" if tags else ""
    return f"no trajectory of the step is usable: {problem}{last}"


def _is_fatal(error: BaseException) -> bool:
    """Whether the run cannot go on: a fatal error, here or in a reward worker, or a loop that cannot be made."""
    causes = (error, getattr(error, "cause", None))
    return any(isinstance(each, FatalError | InstantiationException) for each in causes) or _unregistered(error)


def _unregistered(error: BaseException) -> bool:
    """Whether verl asserted that an agent loop is not registered."""
    return isinstance(error, AssertionError) and "not registered" in str(error)


def _reason(error: BaseException) -> str:
    """The error's own message: Ray's wrapper prints the remote traceback around it."""
    cause = getattr(error, "cause", None)
    if _unregistered(error):
        import verl.experimental.agent_loop.agent_loop as agent_loop

        known: Mapping[str, Any] = agent_loop._agent_loop_registry
        name = str(error).removeprefix("Agent loop ").split(" ")[0]
        return f"agent loop {name!r} is not registered. {did_you_mean(name, known)}"
    return str(cause or error)
