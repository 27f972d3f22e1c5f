"""Scores a batch after sampling, with a reward model that shares the trainer's GPUs.

verl then gives its reward workers only prompt and response: no ground truth and no trajectory. One trajectory that
cannot be scored fails the whole step, and what a manager reports is not logged. Here the reward manager `trajectory`
gets the same data as during sampling, and a trajectory that cannot be scored is dropped from the batch and counted.
Other managers are not changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agent_rl.errors import FatalError, UnscoredError
from agent_rl.trajectory import Trajectory
from agent_rl.verl_adapter.failures import ERRORS_PARTITION
from agent_rl.verl_adapter.outputs import TRAJECTORY
from agent_rl.verl_adapter.trained_samples import finals, session_of

__all__ = ["scored"]


def scored(trainer: Any, batch: Any) -> Any:
    """The batch without the trajectories that could not be scored; the scores of the others are in TransferQueue.

    Raises:
        FatalError: a trajectory could not be scored because the configuration or code is wrong.
        UnscoredError: none of a training's could be scored.
    """
    keys = finals(batch.keys)
    if not keys:  # of a validation
        return batch
    with _awake(trainer):
        results = trainer.reward_loop_manager.score_each(_as_handed_over(keys, batch.partition_id))
    return _written(batch, dict(zip(keys, results, strict=True)))


@contextmanager
def _awake(trainer: Any) -> Iterator[None]:
    """Load the models that share the trainer's GPUs for this block; verl's own model has a separate manager."""
    shares = not trainer.config.reward.reward_model.enable_resource_pool
    verls = trainer.reward_loop_manager.reward_model_manager if shares else None
    managers = [manager for manager in (trainer.served_models, verls) if manager is not None]
    try:
        for manager in managers:
            manager.wake_up()
        yield
    finally:
        for manager in managers:
            manager.sleep()


def _as_handed_over(keys: list[str], partition: str) -> Any:
    """The trajectories in the form in which an agent-loop worker sends them, with what our reward manager reads."""
    fields = ["responses", "num_turns", "uid", "extra_fields"]
    data = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=fields)
    responses, extra_fields = list(data["responses"].unbind()), _objects(data["extra_fields"])
    for extra in extra_fields:  # verl has stored the dataclass as a dict
        extra[TRAJECTORY] = Trajectory.from_dict(extra[TRAJECTORY])
    columns = {
        "uid": _objects(data["uid"]),
        "tool_extra_fields": extra_fields,
        "__num_turns__": np.array([int(turns) for turns in data["num_turns"]]),
        "response_len": np.array([len(response) for response in responses]),
    }
    tensors = {"responses": pad_sequence(responses, batch_first=True)}
    return DataProto(batch=TensorDict(tensors, batch_size=len(keys)), non_tensor_batch=columns)


def _objects(values: Any) -> Any:
    """One Python object for each row."""
    objects = np.empty(len(values), dtype=object)
    objects[:] = [getattr(value, "data", value) for value in values]
    return objects


def _written(batch: Any, results: dict[str, Any]) -> Any:
    """Store the scores in TransferQueue, and return the batch without unscored trajectories.

    Raises:
        FatalError: a trajectory could not be scored because the configuration or code is wrong.
        UnscoredError: none of a training's could be scored.
    """
    failed = {key: result for key, result in results.items() if isinstance(result, BaseException)}
    for error in failed.values():
        if isinstance(error, FatalError):
            raise error
    if failed:
        validate = batch.partition_id != "train"
        reasons = [f"{type(error).__name__}: {error}" for error in failed.values()]
        tags = [
            {"error": reason, "fatal": False, "validate": validate, "tokens": None, "turns": None} for reason in reasons
        ]
        tq.kv_batch_put(keys=list(map(session_of, failed)), partition_id=ERRORS_PARTITION, tags=tags)
        if len(failed) == len(results) and not validate:
            raise UnscoredError(
                f"no trajectory of the step is usable: {len(failed)} failed, the last with: {reasons[-1]}"
            )
        gone = {session_of(key) for key in failed}
        lost = [key for key in batch.keys if session_of(key) in gone]
        tq.kv_clear(keys=lost, partition_id=batch.partition_id)
        batch = batch.select_keys([key for key in batch.keys if key not in set(lost)])
    if batch.keys:
        _write(batch, {session_of(key): result for key, result in results.items()})
    return batch


def _write(batch: Any, results: dict[str, Any]) -> None:
    """Give every sequence of a trajectory its score, at the last token trained on, and what the manager reports."""
    data = tq.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["response_mask", "extra_fields"]
    )
    rows = []
    for key, mask, extra in zip(batch.keys, data["response_mask"].unbind(), data["extra_fields"], strict=True):
        result = results[session_of(key)]
        scores = torch.zeros(len(mask), dtype=torch.float32)
        scores[mask.nonzero()[-1] if mask.any() else -1] = result["reward_score"]
        fields = dict(getattr(extra, "data", extra)) | {"reward_extra_info": result["reward_extra_info"]}
        fields.pop(TRAJECTORY, None)  # the trainer fetches the others at each step
        rows.append({"rm_scores": scores, "extra_fields": fields})
    tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=list_of_dict_to_tensordict(rows))
