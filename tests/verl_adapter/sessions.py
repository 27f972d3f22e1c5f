"""Sessions of which some fail, through verl's worker, replay buffers and trainer, with its queue in this process.

Runs where verl is imported with our plugin, or alone (`tests.support.forks`). The agent loop is scripted, and the
passes of a model are left out; everything that decides what is trained on is verl's and ours.
"""

import asyncio
import logging
import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import hydra
import torch
import transfer_queue
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput, _agent_loop_registry
from verl.trainer.ppo.v1 import agent_loop_tq, trainer_base
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from agent_rl.verl_adapter import failures

logging.disable(logging.CRITICAL)
N = 8
TOKENIZER = SimpleNamespace(eos_token_id=0, pad_token_id=0, decode=lambda ids, **_: "text")
WORST = {3: 0, 5: 1, 11: 1, 13: 2}
"""Samples that survive of the prompts that fail most."""


class Queue:
    """TransferQueue's functions, in memory."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.fields: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)

    async def async_kv_put(self, key: str, partition_id: str, fields: Any = None, tag: Any = None) -> None:
        self.tags[partition_id].setdefault(key, {}).update(tag or {})

    async def async_kv_batch_put(self, keys: Any, partition_id: str, fields: Any = None, tags: Any = None) -> None:
        self.kv_batch_put(keys, partition_id, fields, tags)

    def kv_batch_put(self, keys: Any, partition_id: str, fields: Any = None, tags: Any = None) -> Any:
        for row, key in enumerate(keys):
            self.tags[partition_id].setdefault(key, {}).update(tags[row] if tags else {})
            given = fields[row] if fields is not None else {}  # on a CPU rows are dicts, otherwise a TensorDict
            for name in given.keys():  # noqa: SIM118
                self.fields[partition_id, key][name] = getattr(given[name], "data", given[name])
        return trainer_base.KVBatchMeta(
            partition_id=partition_id, keys=list(keys), tags=[self.tags[partition_id][key] for key in keys]
        )

    def kv_batch_get(self, keys: Any, partition_id: str, select_fields: Any = None) -> Any:
        if not keys:
            raise ValueError("keys or partition were not found!")
        rows = [self.fields[partition_id, key] for key in keys]
        found = list_of_dict_to_tensordict(
            [{name: row[name] for name in select_fields or row if name in row} for row in rows]
        )
        for name, value in rows[0].items():
            if name in found.keys() and isinstance(value, torch.Tensor):  # noqa: SIM118
                values = [row[name] for row in rows]
                found[name] = torch.nested.as_nested_tensor(values, layout=torch.jagged)  # also those of one length
        return found

    def kv_list(self, partition_id: str | None = None) -> dict[str, Any]:
        found = {name: its for name, its in self.tags.items() if partition_id in (None, name)}
        return {name: {key: dict(tag) for key, tag in its.items()} for name, its in found.items()}

    def kv_clear(self, keys: Any, partition_id: str) -> None:
        for key in keys:
            self.tags[partition_id].pop(key, None)
            self.fields.pop((partition_id, key), None)


QUEUE = Queue()
for _name in ("async_kv_put", "async_kv_batch_put", "kv_batch_put", "kv_batch_get", "kv_list", "kv_clear"):
    setattr(transfer_queue, _name, getattr(QUEUE, _name))
trainer_base.PPOTrainer._compute_metrics = lambda *_: None  # verl's metrics
WorkerClass: Any = agent_loop_tq.AgentLoopWorkerTQ.__ray_actor_class__
if trainer_base.get_trainer_cls("sync") is not PPOTrainerSync:  # with our plugin, which has seen the real queue
    from agent_rl.verl_adapter import patches, rollout

    patches.empty_batches(transfer_queue)
    WorkerClass = rollout.AgentLoopWorker


def reward(prompt: int, session: int) -> float:
    return (prompt * 7 + session * 5) % 11 / 8


def survives(prompt: int, session: int, share: float = 0.05) -> bool:
    """Whether a session of a prompt succeeds: 5 % fail, and more of `WORST`."""
    unlucky = random.Random(f"{prompt} {session}").random() < share
    return session < WORST.get(prompt, N) and not (unlucky and prompt not in WORST)


class Worker(WorkerClass):
    """verl's or ours, without an engine and tools."""

    def __init__(self, config: Any) -> None:
        self.config, self.distillation_enabled, self.reward_loop_worker_handles = config, False, None
        self.llm_client = self.processor = self.hf_model_type = self.dataset_cls = self.tools = None
        self.tokenizer, self._unended, self._ended_early = TOKENIZER, set(), set()


class Scripted:
    """An agent loop that answers at once or fails."""

    mask, scores = 1, True

    def __init__(self, **_: Any) -> None: ...

    async def run(self, sampling_params: Any, **kwargs: Any) -> Any:
        failures.measure(tokens=9, turns=2)
        if not survives(kwargs["index"], kwargs["session_id"]):
            if kwargs["index"] % 2:
                return []
            raise ConnectionError("the judge is away")
        sizes = (3, 2 + kwargs["session_id"])[kwargs["index"] % 2 :]  # every second prompt's trajectories are two rows
        return [self.output(reward(kwargs["index"], kwargs["session_id"]), size) for size in sizes]

    def output(self, reward: float, tokens: int) -> Any:
        fields = {"reward_extra_info": {"turns": 1, "acc": reward}, "min_global_steps": 0, "max_global_steps": 0}
        return AgentLoopOutput(
            prompt_ids=[1, 2],
            response_ids=[3] * tokens,
            response_mask=[self.mask] * tokens,
            reward_score=reward if self.scores else None,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields=fields,
        )


_agent_loop_registry["scripted"] = {"_target_": f"{__name__}.Scripted"}


def trainer(mode: str, *overrides: str) -> Any:
    """The mode's trainer; its prompts are numbered, and sampled when they are submitted."""
    small = [
        f"trainer.v1.trainer_mode={mode}",
        f"actor_rollout_ref.rollout={{name: sglang, n: {N}, nnodes: 1, n_gpus_per_node: 1}}",
        "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl",
        "actor_rollout_ref.actor.ppo_mini_batch_size=1",
        "trainer.v1.separate_async.parameter_sync_step=${data.train_batch_size}",
    ]
    with hydra.initialize_config_module("verl.trainer.config", version_base=None):
        config = hydra.compose("ppo_trainer", [*small, *overrides])
    made: Any = trainer_base.get_trainer_cls(mode)(config)
    made.global_steps, made.submitted, made.use_critic = 1, 0, False
    made.replay_buffer.refill_fn = lambda count: submit(made, count)
    made.replay_buffer.poll_interval = 0
    made.tokenizer = TOKENIZER
    made.actor_rollout_wg = SimpleNamespace(_dispatch_info={"actor": [0]})
    made.validation_generations_logger = SimpleNamespace(log=print)
    made.reward_loop_manager = SimpleNamespace(reward_loop_worker_handles=[], reward_model_manager=None)
    made.worker = Worker(config)
    return made


def submit(made: Any, count: int, validate: bool = False, uids: Any = None) -> None:
    """Sample prompts, whose uids are their numbers unless others are given."""
    partition = "val" if validate else "train"
    rows = range(made.submitted, made.submitted + count)
    made.submitted += count
    tags = [{"is_prompt": True, "status": "pending", "global_steps": made.global_steps} for _ in rows]
    uids = uids or [f"p{row}" for row in rows]
    QUEUE.kv_batch_put(uids, partition, tags=tags)
    where = {"step": made.global_steps, "validate": validate, "sample_index": 0, "rollout_n": 0}

    async def run() -> None:
        row = {"data_source": "math", "reward_model": {"ground_truth": "42"}, "agent_name": "scripted"}
        columns = {**row, "raw_prompt": [{"role": "user", "content": "6*7?"}]}
        own = zip(uids, rows, strict=True)
        prompts = [{"uid": uid, "index": row, "global_steps": made.global_steps, **columns} for uid, row in own]
        await asyncio.gather(*(made.worker._run_prompt(prompt, {}, where) for prompt in prompts))

    asyncio.run(run())


def steps(mode: str, prompts: int, batch: int, *overrides: str) -> list[dict[str, Any]]:
    """Each step's metrics, and the advantages of its rows."""
    made = trainer(mode, f"data.train_batch_size={batch}", *overrides)
    if mode != "sync":
        submit(made, prompts)
    found = []
    for step in range(1, prompts // batch + 1):
        made.global_steps = step
        if mode == "sync":
            submit(made, batch)
        rows, _ = made.replay_buffer.sample(step, "train", batch)
        rows = made._balance_batch(rows, {})
        made._compute_advantage(rows, {})
        kept = [key for key, tag in zip(rows.keys, rows.tags, strict=True) if not tag.get("is_padding")]
        advantages = {key: QUEUE.fields["train", key]["advantages"].tolist() for key in kept}
        found.append({"advantages": advantages, "metrics": measured(made, rows)})
        QUEUE.kv_clear(rows.keys, "train")
    return found


def measured(made: Any, rows: Any) -> dict[str, float]:
    """Our metrics of a step, without verl's."""
    metrics: dict[str, float] = {}
    made._compute_metrics(rows, metrics, {}, made.global_steps, 0)
    return metrics
