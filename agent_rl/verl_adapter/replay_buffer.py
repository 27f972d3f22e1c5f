"""`watched`: adds failure reasons and interruptible waiting to verl's replay buffer, or to the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from agent_rl.errors import FatalError
from agent_rl.verl_adapter.failures import ERRORS_PARTITION
from agent_rl.verl_adapter.trained_samples import reported, rewards, samples


def watched(buffer: Any, trainer: Any) -> Any:
    """Return the replay buffer with `AgentReplayBuffer` as its first base class.

    A user's sampler that is not derived from verl's is returned unchanged.
    """
    if not isinstance(buffer, ReplayBuffer):
        return buffer
    kind = type(buffer)
    buffer.__class__ = type(kind.__name__, (AgentReplayBuffer, kind), {})
    assert isinstance(buffer, AgentReplayBuffer)
    buffer.trainer = trainer
    return buffer


class AgentReplayBuffer(ReplayBuffer):
    """Mixin with agent_rl's additions to a replay buffer.

    Attributes:
        trainer: the `AgentTrainer` whose samples the buffer contains.
        poll: a function that is called whenever TransferQueue is polled, and that may interrupt a validation.
        is_sampling: whether the buffer is waiting for a batch; still true after an error has interrupted the wait.
    """

    trainer: Any
    poll: Callable[[], None] | None = None
    is_sampling = False
    _hopeless = 0
    _failed_in_a_row = 0
    _filtered: tuple[int, int] = (0, 0)  # step, number of groups

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Sample as verl does; in training, an empty batch raises an error with the reason.

        Raises:
            UnscoredError: every trajectory has failed.
        """
        self.is_sampling = True
        try:
            batch, metrics = super().sample(global_steps, partition_id, batch_size)
        except RuntimeError as error:  # verl raises this only in training; a validation gets an empty batch
            if "no materializable trajectories" not in str(error):
                raise
            raise self.trainer.failures.nothing_usable(error) from error
        if not batch.keys and partition_id != "val":
            raise self.trainer.failures.nothing_usable("every trajectory failed")
        self.is_sampling = False
        return batch, metrics

    def wait_for_sampleable(self, global_steps: int, partition_id: str, target_count: int) -> Any:
        """Wait as verl's asynchronous buffer does, but not forever if all groups fail and are replaced."""
        self._hopeless, self._failed_in_a_row = 2 * target_count, 0
        return super().wait_for_sampleable(global_steps, partition_id, target_count)  # type: ignore[misc]

    def _sync_metadata_from_transfer_queue(self) -> None:
        """Poll TransferQueue, and raise any fatal error that a worker has reported."""
        if self.poll is not None:
            self.poll()
        super()._sync_metadata_from_transfer_queue()
        failed = self.partitions.get(ERRORS_PARTITION, {})
        self.trainer.failures.see(failed)
        if self.is_sampling:
            self.trainer.stragglers.look(self.prompt_global_steps["train"], self.partitions["train"], failed)

    def _evict_terminal_groups(self, global_steps: int, partition_id: str, eviction_reasons: Any) -> Any:
        """Remove groups as verl does, and count them by reason.

        Raises:
            UnscoredError: the number of groups that failed in a row reached twice the batch size.
            FatalError: a step exceeded the limit for replaced groups with equal rewards.
        """
        stale, filtered, failed = eviction_reasons[:3]  # they may overlap
        for fate, uids in (("stale", stale), ("filtered", filtered - stale), ("evicted", failed - stale - filtered)):
            tags = {key: tag for key, tag in self.partitions[partition_id].items() if key.split("_")[0] in uids}
            known = self.trainer.reward_loop_manager.reward_loop_worker_handles is not None  # scored while sampling
            values = rewards(tags, partition_id) if known else ()
            self.trainer.samples.left_out += samples(fate, tags, reported(tags, partition_id), values)
        if isinstance(self, ReplayBufferAsync):
            self._failed_in_a_row = 0 if self.finished_keys[partition_id] else self._failed_in_a_row + len(failed)
            if failed and self._failed_in_a_row >= self._hopeless:
                raise self.trainer.failures.nothing_usable(f"{self._failed_in_a_row} groups failed in a row")
        evicted = super()._evict_terminal_groups(global_steps, partition_id, eviction_reasons)
        step, number = self._filtered
        self._filtered = global_steps, evicted[2] + (number if step == global_steps else 0)
        config = self.trainer.config
        groups = config.algorithm.filter_groups
        most = groups.max_num_gen_batches * config.data.train_batch_size  # verl's v1 trainers ignore this limit
        if groups.enable and 0 < most < self._filtered[1]:
            raise FatalError(
                f"step {global_steps} has replaced {self._filtered[1]} groups whose samples all got the same "
                "reward: choose problems that the policy sometimes solves, or raise "
                "algorithm.filter_groups.max_num_gen_batches"
            )
        return evicted

    def _clear_groups(self, partition_id: str, uids: set[str]) -> None:
        """Remove groups, and keep their success rates for the row order if rewards are already known."""
        order = self.trainer.row_order
        if order is not None and order.scores_in_time and partition_id == "train":
            order.removed += order.visits(
                [key for key in self.partitions[partition_id] if key.split("_")[0] in uids], partition_id
            )
        super()._clear_groups(partition_id, uids)
