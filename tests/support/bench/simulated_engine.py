"""An engine that samples nothing, and a model that computes nothing, for `benchmarks/scale.py`.

verl imports this module in every process of a run (`VERL_USE_EXTERNAL_MODULES`), before agent_rl's plugin. Turns have
the lengths of the variable `SIMULATED`, and arrive as late as an engine would send them, in scaled time. A training
worker gets its rows from TransferQueue and writes log-probs of 0 there, but its model runs no pass. The patches that
make a small run on a CPU faster are left out, because a run on GPUs does not have them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from pathlib import Path
from typing import Any

import ray
import wrapt

from agent_rl.cpu import patches

SIMULATED: dict[str, Any] = json.loads(Path(os.environ["SIMULATED"]).read_text())
"""`lengths`: for each step, and each of some trajectories, a list of turns, each with its tokens and those of the
observation after it (0: last turn); `samples`: trajectories per prompt; `token_s`: seconds per token; `is_repaired`:
whether agent_rl replaces what limits a cluster in verl."""
SPEED = "agent_rl.cpu.speed"


def _turns(tokenizer: Any, step: int) -> list[list[list[int]]]:
    """Return the tokens of each turn of each trajectory of a step."""

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    word = encode(" the")
    trajectories = []
    for lengths in SIMULATED["lengths"][step]:
        turns = []
        for tokens, observation in lengths:
            call = f'{{"name": "words", "arguments": {{"count": {observation}}}}}'
            end = encode(f"\n<tool_call>\n{call}\n</tool_call>" if observation else " done.")
            end.append(tokenizer.convert_tokens_to_ids("<|im_end|>"))
            turns.append((word * tokens)[: max(1, tokens - len(end))] + end)
        trajectories.append(turns)
    return trajectories


class SimulatedServer:
    """What verl calls of its SGLang server."""

    def __init__(self, model: str) -> None:
        from verl.utils import hf_tokenizer

        tokenizer = hf_tokenizer(model)
        self._steps = [_turns(tokenizer, step) for step in range(len(SIMULATED["lengths"]))]
        self._end = tokenizer.convert_tokens_to_ids("<|im_end|>")
        self._first: int | None = None
        """Messages before the first turn."""

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> Any:
        """Return the next turn of a conversation; each turn and each observation is a message."""
        from verl.workers.rollout.replica import TokenOutput

        messages = prompt_ids.count(self._end)
        self._first = messages if self._first is None else self._first
        step, trajectory = sampling_params["trajectory"]
        tokens = self._steps[step][trajectory][(messages - self._first) // 2]
        await asyncio.sleep(SIMULATED["token_s"] * len(tokens))
        versions = {"global_steps": 0}
        return TokenOutput(
            token_ids=tokens, log_probs=[-1.0] * len(tokens), stop_reason="completed", extra_fields=versions
        )

    async def nothing(self, *_: Any, **__: Any) -> None:
        """What an engine does with its memory."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing
    abort_all_requests = resume_generation = set_global_steps = nothing


def _replicas(module: Any) -> None:
    class SimulatedReplica(module.RolloutReplica):
        async def launch_servers(self) -> None:
            options = {"name": f"simulated_server_{self.replica_rank}{self.name_suffix}", "num_cpus": 0}
            server = ray.remote(SimulatedServer).options(**options, max_concurrency=self.max_concurrency)
            self._server_handle = server.remote(str(self.model_config.path))
            self.servers = [self._server_handle]
            self._server_address = f"simulated:{self.replica_rank}"

    module.get_rollout_replica_class = lambda *_, **__: SimulatedReplica


def _rollouts(module: Any) -> None:
    class SimulatedRollout(module.BaseRollout):
        """What a training worker sends weights with."""

        def __init__(self, *args: Any, replica_rank: int = -1, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

        async def resume(self, tags: list[str]) -> None: ...

        async def release(self) -> None: ...

        async def update_weights(self, weights: Any, **_: Any) -> None: ...

    module.get_rollout_class = lambda *_, **__: SimulatedRollout


def _trajectories(module: Any) -> None:
    """Tell the server which trajectory a session plays."""
    run = module.AgentLoopWorker._run_agent_loop

    @functools.wraps(run)
    async def run_agent_loop(self: Any, sampling_params: dict[str, Any], trajectory: Any, **row: Any) -> Any:
        step = int(trajectory["step"]) - 1
        place = int(row["index"]) * SIMULATED["samples"] + int(row["session_id"])
        params = {**sampling_params, "trajectory": (step, place % len(SIMULATED["lengths"][step]))}
        return await run(self, params, trajectory, **row)

    module.AgentLoopWorker._run_agent_loop = run_agent_loop


def _passes(module: Any) -> None:
    """A model's passes, without a model."""
    import torch
    from verl.utils import tensordict_utils as tu

    worker = module.TrainingWorker
    metrics = {"loss": 0.0, "grad_norm": 0.0, "mfu": 0.0}

    @functools.wraps(worker.infer_batch)
    def infer_batch(self: Any, data: Any) -> Any:
        ids = data["input_ids"]
        zeros = torch.nested.nested_tensor_from_jagged(torch.zeros(len(ids.values())), ids.offsets())
        return tu.get_tensordict({"log_probs": zeros, "entropy": zeros.clone()}, {"metrics": dict(metrics)})

    @functools.wraps(worker.train_batch)
    def train_batch(self: Any, data: Any) -> Any:
        return tu.get_tensordict({}, {"metrics": dict(metrics)})

    worker.infer_batch, worker.train_batch = infer_batch, train_batch


def _verls_routes(module: Any) -> None:
    module.direct = lambda client, _: client


def _verls_puts(module: Any) -> None:
    module.together = lambda _: None


def _verls_trainer(module: Any) -> None:
    module.collect_rarely = lambda: None
    module.updates.balance = lambda *arguments: module.PPOTrainer._balance_batch(*arguments)


VERLS = (
    ("agent_rl.verl_adapter.routing", _verls_routes),
    ("agent_rl.verl_adapter.trajectory_puts", _verls_puts),
    ("agent_rl.verl_adapter.trainer", _verls_trainer),
)
"""What agent_rl replaces in verl, because it limits a cluster, is as in verl."""
patches.HOOKS = tuple(hook for hook in patches.HOOKS if hook[1].__module__ != SPEED)
for _module, _action in (
    ("verl.workers.rollout.replica", _replicas),
    ("verl.workers.rollout.base", _rollouts),
    ("verl.experimental.agent_loop.agent_loop", _trajectories),
    ("verl.workers.engine_workers", _passes),
    *(() if SIMULATED["is_repaired"] else VERLS),
):
    wrapt.register_post_import_hook(_action, _module)
