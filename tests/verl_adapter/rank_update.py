"""One data-parallel rank that updates a policy once with verl's own worker: `python rank_update.py SETTINGS`.

The rows are made of lengths, filled up with verl's own filling row, and divided among the ranks as verl divides them.
Rank 0 writes the weights.
"""

import json
import os
import sys
from functools import partial
from typing import Any

import torch
import verl  # noqa: F401 - first, for the plugin
from tensordict import TensorDict
from verl.trainer.ppo.padding_utils import construct_minimal_padding_template
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tensordict_utils import list_of_dict_to_tensordict
from verl.workers import engine_workers
from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig

from agent_rl.launch.composition import compose


def main(model: str, lengths: list[tuple[int, int]], out: str, cases: list[dict[str, Any]]) -> None:
    found = [update(model, lengths, **case) for case in cases]
    if os.environ["RANK"] == "0":
        with open(out, "w", encoding="utf-8") as file:
            json.dump(found, file)


def update(
    model: str,
    lengths: list[tuple[int, int]],
    aggregate: str,
    filled: int,
    mini_batches: int | None = None,
    mini_batch_size: int | None = None,
    lr: float = 1e-3,
) -> list[float]:
    """The weights after an update with these rows, filled up to so many."""
    worker = policy(model, aggregate, lr)
    mine = torch.arange(filled).chunk(int(os.environ["WORLD_SIZE"]))[int(os.environ["RANK"])]
    data = tu.index_select_tensor_dict(rows(lengths, filled), mine)
    settings: dict[str, Any] = {"temperature": 1.0, "use_dynamic_bsz": True, "max_token_len_per_gpu": 256}
    if mini_batch_size is None:
        settings |= {"num_mini_batch": mini_batches, "global_batch_size": len(lengths) / (mini_batches or 1)}
    else:
        settings |= {"mini_batch_size": mini_batch_size, "global_batch_size": mini_batch_size}
    tu.assign_non_tensor(data, **settings)
    worker.train_mini_batch(data)
    weights = [value for _, value in sorted(worker.engine.module.state_dict().items())]
    whole = [value.full_tensor() if hasattr(value, "full_tensor") else value for value in weights]
    return torch.cat([value.flatten() for value in whole]).tolist()


def policy(model: str, aggregate: str, lr: float) -> TrainingWorker:
    """verl's worker, made as its actor is."""
    overrides = {
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.actor.loss_agg_mode": aggregate,
        "actor_rollout_ref.actor.optim.lr": lr,
        "actor_rollout_ref.actor.optim.weight_decay": 0.0,
        "actor_rollout_ref.actor.use_dynamic_bsz": True,
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 256,
    }
    config = compose("recipes/quickstart", [f"{key}={value}" for key, value in overrides.items()]).actor_rollout_ref
    actor = omega_conf_to_dataclass(config.actor)
    actor.model_config = omega_conf_to_dataclass(config.model)
    training = TrainingWorkerConfig(
        model_type="language_model",
        model_config=actor.model_config,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    worker = TrainingWorker(config=training)
    worker.reset()
    worker.set_loss_fn(partial(engine_workers.ppo_loss, config=actor))
    return worker


def rows(lengths: list[tuple[int, int]], filled: int) -> TensorDict:
    """Rows with random tokens and one advantage each, then filling rows."""
    torch.manual_seed(0)
    made: list[dict[str, Any]] = []
    for prompt, response in lengths:
        ids, mask = torch.randint(3, 200, (prompt + response,)), torch.ones(response, dtype=torch.int64)
        made.append({
            "prompts": ids[:prompt], "responses": ids[prompt:], "input_ids": ids, "response_mask": mask,
            "position_ids": torch.arange(prompt + response), "attention_mask": torch.ones_like(ids), "loss_mask": mask,
            "rollout_log_probs": -torch.rand(response), "rm_scores": torch.zeros(response),
            "advantages": torch.randn(1).expand(response).clone(),
        })  # fmt: skip
    filling, _ = construct_minimal_padding_template(made[0], {}, eos_token_id=0)
    filling["advantages"] = torch.zeros(1)
    for row in made:
        row["num_turns"] = 1
    return list_of_dict_to_tensordict(made + [dict(filling) for _ in range(filled - len(made))])


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
    torch.distributed.destroy_process_group()
