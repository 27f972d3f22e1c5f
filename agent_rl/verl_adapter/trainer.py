"""`AgentTrainer`: verl's trainer with agent_rl's additions; its methods follow the order of a step.

A class derived from `AgentTrainer` and from verl's class for a mode (`sync`, `colocate_async`, `separate_async`) is
registered under the mode's name, because verl compares these names. Each method's docstring describes what the method
adds to verl's. `agent_rl.trainer_class` sets the user's trainer (docs/guides/trainer.md).
"""

from __future__ import annotations

import functools
import logging
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf, open_dict
from transfer_queue import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.trainer.ppo.v1.trainer_colocate_async import PPOTrainerColocateAsync
from verl.trainer.ppo.v1.trainer_separate_async import PPOTrainerSeparateAsync
from verl.trainer.ppo.v1.trainer_separate_async import logger as separate_logger
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from agent_rl.errors import AgentRLError
from agent_rl.settings import SECTION, AgentRLSettings
from agent_rl.settings.errors import Place
from agent_rl.settings.importing import find_object
from agent_rl.verl_adapter import (
    ending,
    ordering,
    recorded,
    replay_buffer,
    reward_loop,
    routing,
    served_models,
    sinks,
    stages,
    stragglers,
    trained_samples,
    updates,
)
from agent_rl.verl_adapter.algorithms import inputs, remax, turns
from agent_rl.verl_adapter.algorithms.advantages import estimate
from agent_rl.verl_adapter.custom_function import MANAGER
from agent_rl.verl_adapter.failures import FailedSessions, clear_restored
from agent_rl.verl_adapter.trained_samples import finals, session_of
from agent_rl.verl_adapter.verl_loop import collect_rarely

MODES = (PPOTrainerSync, PPOTrainerColocateAsync, PPOTrainerSeparateAsync)
LOOP_MANAGER = "agent_rl.verl_adapter.rollout.AgentLoopManager"


class AgentTrainer(PPOTrainer):
    """verl's trainer for a mode, extended for agent_rl's agents, tools and rewards.

    Attributes:
        settings: the `agent_rl` section, without the addresses of served models.
        row_order: the order of the training rows; None means verl's order.
        served_models: the servers of `agent_rl.reward.models`; None without served models.
        failures: the sessions that have failed.
        samples: the samples that are not part of a batch.
        stragglers: the sessions of the step that have not ended.
        last_step: tracks the last complete step, and saves it when the run stops.
        recorded: the run whose recorded trajectories are trained on; None if the engine samples.
        are_engines_awake: whether the engines occupy memory on the trainer's GPUs; not used in `mode=separate_async`.
        is_idle: whether the current batch makes no update, for lack of trainable tokens or of baselines.
        advantages: the result of `estimate_advantages` for the current batch.
    """

    def __new__(cls, config: Any) -> AgentTrainer:
        """Create an instance of the mode's class, combined with the user's class if it is set."""
        instance: AgentTrainer = super().__new__(with_users_class(cls, config))
        return instance

    def __init__(self, config: Any) -> None:
        self.settings = AgentRLSettings.from_config(config)
        agent = config.actor_rollout_ref.rollout.agent
        if not agent.get("agent_loop_manager_class"):
            with open_dict(agent):
                agent.agent_loop_manager_class = LOOP_MANAGER
        if not config.actor_rollout_ref.get("hybrid_engine", True):
            separate_logger.setLevel(logging.WARNING)  # verl passes `flush` to `info`, which raises a TypeError
        self.row_order: ordering.RunOrder | None = None
        self.served_models: served_models.ServedModels | None = None
        self.samples = trained_samples.StepSamples()
        self.failures = FailedSessions(self.settings.reward.max_unscored_share)
        rate, limit_s = config.actor_rollout_ref.rollout.get("over_sample_rate", 0), self.settings.run.max_sampling_s
        self.recorded: recorded.RecordedRun | None = None
        if place := self.settings.policy.trace:
            self.recorded, rate, limit_s = recorded.run_at(place), 0, None
            self._enable_hybrid_replicas = False  # keeps verl from starting an engine
        self.stragglers = stragglers.Stragglers(self, rate, limit_s)
        self.are_engines_awake = True
        self.is_idle = False
        self.advantages: Any = None
        self._batch: KVBatchMeta | None = None
        super().__init__(config)
        self.last_step = ending.LastStep(self)
        self._log_probs_every = 1 if updates.needs_log_probs(self) else self.settings.run.log_probs_every
        self._reports: dict[str, dict[str, Any]] = {}
        trainer_base.compute_advantage_for_multi_trajectories = self._estimate

    def _build_replay_buffer(self) -> Any:
        return replay_buffer.watched(super()._build_replay_buffer(), self)

    def init(self) -> None:
        """Start workers and engines, and load the checkpoint."""
        super().init()
        collect_rarely()
        stages.announce("agent loops")

    def _init_dataloader(self) -> None:
        """Let `agent_rl.data` decide which row is drawn next."""
        stages.announce("rows")
        super()._init_dataloader()
        if self.settings.data.is_set:
            self.row_order = ordering.RunOrder(self.config, self.settings, self.train_dataset)
            self.train_dataloader = self.row_order.loader(self.train_dataloader)
        if self.recorded is not None:
            self.recorded.require(self.total_training_steps)

    def _init_resource_pool_mgr(self) -> None:
        """Serve the reward models as soon as the resource pools exist, before the trainer's workers take the GPUs."""
        stages.announce("model")
        super()._init_resource_pool_mgr()
        models, pools = self.settings.reward.models, self.resource_pool_manager
        if models:  # verl allows only three workers per GPU by default
            room = 2 + sum(model.visits for model in models.values())
            pools.max_colocate_count = max(pools.max_colocate_count, room)
            create = pools.create_resource_pool

            def create_and_serve() -> None:
                create()
                self.served_models = served_models.ServedModels(self.config, models, pools)
                served_models.write_addresses(self.config, self.served_models.served)

            pools.create_resource_pool = create_and_serve  # type: ignore[method-assign]

    def _load_checkpoint(self) -> None:
        stages.announce("weights")
        super()._load_checkpoint()
        if self.trainer_mode != "sync":
            clear_restored()
        if self.row_order is None:
            ordering.require_verls(self.train_dataloader.next_iter_state)
            return
        self.row_order.scores_in_time = self.reward_loop_manager.reward_loop_worker_handles is not None
        self.train_dataloader_it = iter(self.train_dataloader)  # load the state now instead of in the first step

    def get_llm_client(self) -> Any:
        """Let the workers of synchronous training choose the engines of their conversations (`routing`)."""
        return routing.direct(super().get_llm_client(), self.llm_server_manager)

    def fit(self, agent_loop_manager: Any) -> None:
        """Train; if the run is stopped or agent_rl raises an error, save the last complete step."""
        with self.last_step.saved(), ending.stalls_raised(self, self.settings.run.weight_sync_timeout_s):
            super().fit(agent_loop_manager)

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, Any]) -> KVBatchMeta:
        """Sample a batch and update the models; then report the success rates to the row order."""
        self.last_step.begin()
        stages.announce(stages.SAMPLING, self.global_steps)
        batch = super().step(metrics, timing_raw)
        self.last_step.complete()
        if self.row_order is not None:
            keys = updates.trained_keys(batch)
            metrics.update(self.row_order.report_step(self.global_steps, keys, batch.partition_id))
        return batch

    def _submit_batch_to_rollout(self, batch: Any) -> int:
        if self.recorded is not None:
            self.recorded.name_prompts(batch, self.global_steps)
        return int(super()._submit_batch_to_rollout(batch))

    def on_sample_begin(self) -> None:
        """Record that the sampling of a step begins."""
        super().on_sample_begin()
        self.stragglers.begin()

    def on_sample_end(self) -> None:
        """Abort the requests of sessions that were ended early, before the engines free their memory."""
        if self.stragglers.are_ended:
            self.checkpoint_manager.abort_replicas()
        super().on_sample_end()
        self.are_engines_awake = False

    def on_init_end(self) -> None:
        """Send the weights to the engine, if there is one."""
        if self.recorded is None:
            super().on_init_end()

    def on_step_end(self) -> None:
        """Send the weights to the engine, if there is one, and let interrupted engines resume their generation."""
        if self.recorded is None:
            super().on_step_end()
        self.are_engines_awake = True
        if self.stragglers.are_ended:
            self.checkpoint_manager.resume_generation_replicas()

    def _compute_reward_colocate(self, batch: KVBatchMeta, metrics: dict[str, Any] | None = None) -> KVBatchMeta:
        """Score a sampled batch with the `trajectory` manager, whose reward model shares the trainer's GPUs."""
        self.are_engines_awake = False
        is_ours = self.config.reward.reward_manager.name == MANAGER
        compute: Any = super()._compute_reward_colocate
        batch = reward_loop.score_sampled(self, batch) if is_ours else compute(batch, metrics)
        self.are_engines_awake = batch.partition_id == "val"  # in a validation, verl now wakes the engines up again
        return batch

    def _balance_batch(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,
    ) -> KVBatchMeta:
        """Leave out samples without a baseline, then pad and order the batch; recorded batches keep their order."""
        batch, self.is_idle = trained_samples.without_lone(batch, self.config, self.samples)
        batch = updates.balance(self, batch, metrics, logging_prefix)
        if self.recorded is not None:
            self.recorded.order(batch, self.global_steps, self.local_trigger_step)
        return batch

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        return updates.required_multiple(self, dp_size)

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Run the log-prob pass in every step if its result is read, otherwise every `log_probs_every` steps."""
        stages.announce("log-probs", self.global_steps)
        if (self.global_steps - 1) % self._log_probs_every:
            return batch
        if self.config.algorithm.adv_estimator not in updates.READERS:
            return super()._compute_old_log_prob(batch, metrics)
        batch.extra_info["calculate_sum_pi_squared"] = True
        result = super()._compute_old_log_prob(batch, metrics)
        result.extra_info.pop("calculate_sum_pi_squared", None)
        return result

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Switch the LoRA adapter off for the reference only: verl's flag would also affect the critic."""
        result = super()._compute_ref_log_prob(batch, metrics)
        result.extra_info.pop("no_lora_adapter", None)
        return result

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Compute the advantages with `estimate_advantages`, and keep the advantages in the trace."""
        self._batch = batch
        result = super()._compute_advantage(batch, metrics)
        metrics.update(self.advantages.meta_info.pop("metrics", {}))
        if not self.is_idle:
            step, update = self.global_steps, self.local_trigger_step
            trained_samples.keep_batch(self.settings.trace, step, update, batch, self.advantages)
        return result

    def _estimate(self, data: DataProto, *args: Any, **options: Any) -> Any:
        """Compute the advantages; verl calls this method, not its function, between fetching and storing the batch."""
        estimator = options.get("adv_estimator")
        if estimator in turns.BY_TURN:
            turns.add_records(data, self._batch)
            data.meta_info["gigpo"] = self.settings.gigpo
        elif estimator in updates.READERS:
            inputs.add_squares(data, self._batch)
        elif estimator == inputs.GDPO:
            algorithm = options["config"]
            weights = inputs.component_weights(algorithm, self.settings.reward, self.global_steps)
            options["config"] = inputs.add_components(data, self._batch, algorithm, weights)
        self.advantages = self.estimate_advantages(data, *args, **options)
        return self.advantages

    def estimate_advantages(
        self, data: DataProto, batch_keys: list[str], adv_estimator: Any, **options: Any
    ) -> DataProto:
        """Add `advantages` and `returns` to a batch, counting each trajectory once in its group.

        A batch that has no token to train on, or no group that is large enough, gets advantage 0 and makes no
        update.

        Args:
            data: a `DataProto` of padded tensors (rows, tokens of the response) with `token_level_rewards` and
                `response_mask`.
            batch_keys: the rows' keys, which are `{uid}_{session}_{index}`, or `pad...` for padding rows.
            adv_estimator: `algorithm.adv_estimator`.
            options: the arguments of verl's estimators.
        """
        self.is_idle |= not bool(data.batch["response_mask"].any())
        if self.is_idle:
            self.samples.counts["skipped_updates"] += 1
            data.batch["advantages"] = data.batch["returns"] = data.batch["token_level_rewards"] * 0
            return data
        return estimate(data, batch_keys, adv_estimator, **options)

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        if self.is_idle:
            return batch
        with updates.evenly_split(self, batch, self.config.critic, "critic_wg", "train_mini_batch"):
            return super()._update_critic(batch, metrics)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        stages.announce("update", self.global_steps)
        if self.is_idle:
            return batch
        actor = self.config.actor_rollout_ref.actor
        with updates.evenly_split(self, batch, actor, "actor_rollout_wg", "update_actor"):
            batch = super()._update_actor(batch, metrics)
        updates.rename_metrics(metrics)
        return batch

    def _save_checkpoint(self) -> None:
        stages.announce("checkpoint", self.global_steps)
        super()._save_checkpoint()
        self.last_step.saved_step = self.global_steps

    def _validate(self) -> dict[str, float]:
        """Validate, unless the run is asked to stop in the meantime."""
        with self.last_step.ends_validation():
            stages.announce("validation", self.global_steps)
            return dict(super()._validate())
        return {}  # the step's own metrics must still be logged

    def _val_metrics_update(
        self, sources: Any, uids: Any, infos: Any, turns: Any, expected_acc_counts: Any = None
    ) -> dict[str, float]:
        """Average over the trajectories with a score; verl counts a missing trajectory as accuracy 0."""
        if not uids:
            raise self.failures.nothing_usable("every trajectory failed", "in this validation")
        columns, missing = trained_samples.fill_missing_samples(uids, {"": sources, **infos}, expected_acc_counts)
        sources, uids = columns.pop(""), columns.pop("uid")
        return {**super()._val_metrics_update(sources, uids, columns, turns), **missing}

    def _maybe_log_val_generations(self, inputs: Any, outputs: Any, scores: Any) -> None:
        """Log samples of a validation as conversations."""
        if not isinstance(self.validation_generations_logger, SimpleNamespace):
            log = functools.partial(sinks.log_samples, self.validation_generations_logger.log)
            self.validation_generations_logger: Any = SimpleNamespace(log=log)
        super()._maybe_log_val_generations(inputs, outputs, scores)

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: Any, global_steps: int, epoch: int
    ) -> None:
        """Log the reward's components, and the fate of all samples of the step.

        Adds `agent/<key>` (mean of the reward manager's reports over the step's trajectories), `agent/unscored` (the
        number of training trajectories that failed since the last step), the share, size and reward of trained and of
        untrained samples, `agent/bias_*` (`selection_bias`), and the mean of ReMax's baselines.

        Raises:
            FatalError: a worker reported a fatal error.
            UnscoredError: too large a share of the trajectories failed.
        """
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        keys = updates.trained_keys(batch)
        reports = trained_samples.reported(keys, batch.partition_id)
        self._reports = dict(zip(map(session_of, finals(keys)), reports, strict=True))
        metrics.update(trained_samples.mean_reports(reports))
        if self.config.algorithm.adv_estimator == remax.ESTIMATOR:
            metrics.update(remax.take_metrics(key.split("_")[0] for key in keys))
        try:
            failed = self.failures.take()
            scored = len(reports) + len(self.samples.left_out)
            metrics.update(self.samples.take_metrics(batch, reports, failed))
            self.failures.require_scored(scored, [tag["error"] for tag in failed.values() if tag["fate"] == "lost"])
        except AgentRLError:
            self.logger.log(data=metrics, step=global_steps)  # the step is saved; verl would log it only later
            raise

    def _log_rollout_data(self, batch: KVBatchMeta, *args: Any, **kwargs: Any) -> None:
        """Write the step's rollouts without the padding rows of its batch."""
        super()._log_rollout_data(batch.select_keys(updates.trained_keys(batch)), *args, **kwargs)

    def _dump_generations(self, *args: Any, **kwargs: Any) -> None:
        """Add the reward manager's reports to the training rollouts, as verl does for a validation."""
        columns = kwargs.get("reward_extra_infos_dict", {})
        own = [self._reports.get(session_of(key), {}) for key in columns.get("uid", ())]
        for name in dict.fromkeys(name for report in own for name in report):
            if name not in ("input", "output", "gts", "score", "step"):  # columns that verl writes itself
                columns.setdefault(name, [each.get(name) for each in own])
        super()._dump_generations(*args, **kwargs)


def with_users_class(cls: type[Any], config: Any) -> type[Any]:
    """Return the mode's class, combined with the class in `agent_rl.trainer_class`.

    Among the base classes, a subclass of AgentTrainer precedes the mode's class; any other class follows AgentTrainer.

    Raises:
        ConfigError: the class does not exist, or it belongs to another mode.
    """
    name = OmegaConf.select(config, f"{SECTION}.trainer_class")
    if name is None:
        return cls
    place = Place(SECTION) / "trainer_class"
    user = find_object(name, place)
    if not (isinstance(user, type) and issubclass(user, PPOTrainer)):
        raise place.error(f"{name!r} is not a trainer", f"Derive it from {__name__}.AgentTrainer")
    mode = config.trainer.v1.trainer_mode
    verls = next(base for base in cls.__mro__ if base in MODES)
    other_modes = [base.__name__ for base in user.__mro__ if base in MODES and base is not verls]
    if other_modes:
        problem = f"{name!r} is a {other_modes[0]}, but trainer.v1.trainer_mode={mode} needs {verls.__name__}"
        raise place.error(problem, "Derive it from agent_rl's AgentTrainer, which fits every mode, or change the mode")
    if issubclass(user, AgentTrainer):
        return type(user.__name__, (user, cls), {})
    return type(user.__name__, (cls, type(user.__name__, (user, verls), {})), {})


for _name, _cls in trainer_base.TRAINER_REGISTRY.items():
    trainer_base.TRAINER_REGISTRY[_name] = type(_cls.__name__, (AgentTrainer, _cls), {})
