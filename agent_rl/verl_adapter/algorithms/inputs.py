"""Adds the batch columns that two kinds of verl estimators read but verl's v1 trainer does not fetch.

- GDPO (Liu et al. 2026, https://arxiv.org/abs/2601.05242; `algo=gdpo`) normalizes each component of the reward within
  the group, adds up the weighted results, and divides the sum by the standard deviation of the batch.
- The optimal-token baselines weight a token's baseline by the sum of the squared probabilities over the vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.rewards.compose import by_source
from agent_rl.rewards.metrics import component_metrics
from agent_rl.settings import TERMS, RewardSettings
from agent_rl.settings.reward import Schedule
from agent_rl.verl_adapter.trained_samples import finals, reported, session_of
from agent_rl.verl_adapter.updates import trained_keys

GDPO = "gdpo"
"""The value of `algorithm.adv_estimator` that selects GDPO."""
SQUARES = "sum_pi_squared"
KEYS, WEIGHTS = "gdpo_reward_keys", "gdpo_reward_weights"
"""verl's keys under `algorithm`: the first lists logged numbers, and the second lists the weight of each number."""


def component_weights(algorithm: Any, settings: RewardSettings, step: int) -> dict[str, float]:
    """Return the weights of all data sources' components at a training step, by the components' logged names.

    A component is omitted if its weight is always 0, but not if a schedule sets its weight to 0 at this step.
    If the `algorithm` section names both the components and their weights, return nothing.

    Raises:
        ConfigError: a component has different weights for two data sources, or the reward is not a sum.
    """
    if algorithm.get(KEYS) and algorithm.get(WEIGHTS):
        return {}
    shared: dict[str, Any] = {}
    for key, own in by_source(settings).items():
        if own.combine != "sum":
            problem = f"'gdpo' adds the normalized components itself (value {own.combine!r})"
            raise ConfigError(f"{key}.combine", problem, "Set it to sum")
        terms = {name: getattr(own, name) for name in TERMS} | own.components
        if own.correctness.scorer == "none" and not own.correctness.weight:
            del terms["correctness"]  # these data sources have no such component
        for name, term in terms.items():
            if (other := shared.setdefault(name, term).weight) != term.weight:
                problem = f"the weight of {name!r} is {term.weight} here and {other} for other data sources"
                remedy = f"'gdpo' needs one weight; set the same, or set +algorithm.{KEYS} and +algorithm.{WEIGHTS}"
                raise ConfigError(key, problem, remedy)
    used = {name: term for name, term in shared.items() if term.weight_at(step) or isinstance(term.weight, Schedule)}
    return component_metrics({name: term.weight_at(step) for name, term in used.items()})


def add_components(data: Any, batch: Any, algorithm: Any, weights: dict[str, float]) -> Any:
    """Add the reward's components to a batch, and return `algorithm` with the keys by which verl finds the components.

    Args:
        data: a `DataProto` with the rows of the batch and `response_mask` (rows, tokens of the response).
        batch: verl's `KVBatchMeta`.
        algorithm: the `algorithm` section; its GDPO keys take precedence over `weights`.
        weights: the weight of each component.

    Raises:
        ConfigError: a component is not logged, or the number of weights differs from the number of components.
    """
    keys = trained_keys(batch)
    reports = dict(zip(map(session_of, finals(keys)), reported(keys, batch.partition_id), strict=True))
    names = list(algorithm.get(KEYS) or weights)
    known = set().union(*reports.values())
    for name in names:
        if name not in known:
            place = f"algorithm.{KEYS}" if algorithm.get(KEYS) else "agent_rl.reward"
            raise ConfigError(place, f"{name!r} is not logged", did_you_mean(name, known))
        numbers = [reports.get(session_of(key), {}).get(name, 0.0) for key in batch.keys]
        data.non_tensor_batch[f"component/{name}"] = np.array(numbers, dtype=object)
    mask_BT = data.batch["response_mask"]
    data.batch["prompts"] = mask_BT[:, :0]
    data.batch["attention_mask"] = (mask_BT.flip(1).cumsum(1).flip(1) > 0).to(mask_BT)  # 1 up to the last sampled token
    own = {KEYS: [f"component/{name}" for name in names]}
    own[WEIGHTS] = list(algorithm.get(WEIGHTS) or [weights.get(name, 1.0) for name in names])
    if len(own[WEIGHTS]) != len(names):
        problem = f"there are {len(own[WEIGHTS])} weights for {len(names)} components ({', '.join(names)})"
        raise ConfigError(f"algorithm.{WEIGHTS}", problem, "Write one weight for each component, in the same order")
    return OmegaConf.merge(OmegaConf.create(dict(algorithm)), own)


def add_squares(data: Any, batch: Any) -> None:
    """Add the column `sum_pi_squared` (rows, response tokens), which the log-prob pass has computed."""
    import transfer_queue as tq
    from verl.workers.utils.padding import response_from_nested

    fields = [SQUARES, "response_mask"]
    stored = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    squares = response_from_nested(stored[SQUARES], stored["response_mask"])
    data.batch[SQUARES] = squares.to_padded_tensor(0.0)
