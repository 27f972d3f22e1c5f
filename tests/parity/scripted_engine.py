"""An engine for `run.py` whose answers are a script. verl imports this module in every process of a run.

`VERL_USE_EXTERNAL_MODULES` names it, so it relies on names of verl and TransferQueue only. It replaces what varies from
run to run: the engine, the uids of prompts, the order in which trajectories are read, and the seeds of processes.

An answer is a pure function of the prompt's tokens, the sampling parameters and the session. In the asynchronous modes
the engine answers for the prompts of a step when it has the weights of the step before, and only after all prompts of
the next step have arrived; every second session of those is interrupted in the middle of its first turn.
"""

import asyncio
import contextvars
import functools
import hashlib
import json
import os
import random
import socket
import sys
import time
import uuid
from collections import Counter
from typing import Any

import numpy as np
import ray
import torch
import wrapt

SCRIPT = json.loads(os.environ["PARITY_SCRIPT"])
"""`turns`: texts to choose from; `ahead`: prompts and samples of a step in an asynchronous mode; `weights`: a file;
`resumed`: the step of the checkpoint from which the run resumes, 0 for none."""
DRAWS_UIDS = "verl.trainer"
LONGEST_WAIT_S = 120.0

session: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("session", default=None)
"""What the agent loop of this task runs: `validate`, `number` (of the prompt, in the order of the rows), `session`."""


def number(seed: Any, size: int) -> int:
    """A number below `size` that depends on nothing but the seed."""
    return int.from_bytes(hashlib.sha256(json.dumps(seed).encode()).digest()[:8], "big") % size


class ScriptedServer:
    """What verl calls of its SGLang server, and the path of a classifier over HTTP."""

    def __init__(self, model: str) -> None:
        from verl.utils import hf_tokenizer

        self._tokenizer = hf_tokenizer(model)
        self._version, self._aborts, self._paused = 0, 0, False
        self._arrived: set[tuple[int, int]] = set()
        self._rest: dict[tuple[int, int], tuple[list[int], list[float], str]] = {}
        self._changed = asyncio.Condition()

    async def launch(self) -> str:
        from aiohttp import web

        app = web.Application()
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/embeddings", self._embeddings)
        runner = web.AppRunner(app)
        await runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listener).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    async def generate(self, prompt_ids: Any, sampling_params: dict[str, Any], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        params, prompt_ids = dict(sampling_params), [int(token) for token in prompt_ids]
        who = params.pop("session") or {"validate": True, "number": 0, "session": 0}
        key = (who["number"], who["session"])
        held = bool(SCRIPT["ahead"]) and not who["validate"]
        async with self._changed:
            await self._changed.wait_for(lambda: not self._paused)
        tokens, log_probs, reason = (held and self._rest.pop(key, None)) or self._answer(prompt_ids, params, key)
        if held and not await self._is_due(key):
            half = len(tokens) // 2 if sum(key) % 2 and self._version == self._due(key) - 1 else 0
            self._rest[key] = (tokens[half:], log_probs[half:], reason)
            tokens, log_probs, reason = tokens[:half], log_probs[:half], "abort"
        return TokenOutput(
            token_ids=tokens,
            log_probs=log_probs if params.get("logprobs") else None,
            stop_reason=reason,
            extra_fields={"global_steps": self._version},
        )

    def _answer(self, prompt: list[int], params: dict[str, Any], key: Any) -> tuple[list[int], list[float], str]:
        length = params.pop("max_new_tokens", None) or params.pop("max_tokens", 64)
        seed = [prompt, sorted((name, str(value)) for name, value in params.items()), key[1]]
        text = SCRIPT["turns"][number(seed, len(SCRIPT["turns"]))]
        tokens = [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]
        log_probs = [-4 - number([seed, place], 1000) / 250 for place in range(len(tokens))]
        return tokens[:length], log_probs[:length], "stop" if len(tokens) <= length else "length"

    def _due(self, key: tuple[int, int]) -> int:
        """The version of the weights with which a prompt is answered."""
        return key[0] // int(SCRIPT["ahead"]["prompts"])

    async def _is_due(self, key: tuple[int, int]) -> bool:
        """Wait until a training prompt may be answered; False: until requests are aborted."""
        aborts, due, ahead = self._aborts, self._due(key), SCRIPT["ahead"]
        arrivals = (due + 2 - SCRIPT.get("resumed", 0)) * ahead["prompts"] * ahead["samples"]
        async with self._changed:
            self._arrived.add(key)
            self._changed.notify_all()
            await self._changed.wait_for(
                lambda: self._aborts > aborts or (self._version >= due and len(self._arrived) >= arrivals)
            )
        return self._aborts == aborts

    async def _change(self, **values: Any) -> None:
        async with self._changed:
            self.__dict__ |= values
            self._changed.notify_all()

    async def set_global_steps(self, global_steps: int) -> None:
        await self._change(_version=global_steps)

    async def abort_all_requests(self, **_: Any) -> None:
        await self._change(_aborts=self._aborts + 1, _paused=True)

    async def resume_generation(self) -> None:
        await self._change(_paused=False)

    async def nothing(self, **_: Any) -> None:
        """What an engine does with its memory."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = start_profile = stop_profile = nothing

    async def _health(self, request: Any) -> Any:
        from aiohttp import web

        return web.json_response({})

    async def _embeddings(self, request: Any) -> Any:
        """The scores of a classifier."""
        from aiohttp import web

        asked = (await request.json())["input"]
        inputs = asked if isinstance(asked, list) and asked and not isinstance(asked[0], int) else [asked]
        data = [{"index": at, "embedding": [number(each, 6001) / 1000 - 3]} for at, each in enumerate(inputs)]
        return web.json_response({"data": data})


def write_down(sync: dict[str, Any]) -> None:
    with open(SCRIPT["weights"], "a") as file:
        file.write(json.dumps(sync) + "\n")


def replica_class() -> Any:
    from verl.workers.rollout.replica import RolloutReplica

    class ScriptedReplica(RolloutReplica):
        async def launch_servers(self) -> None:
            kind = "reward_" if self.is_reward_model else ""
            server = ray.remote(ScriptedServer).options(
                name=f"scripted_server_{kind}{self.replica_rank}{self.name_suffix}", max_concurrency=1000, num_cpus=0
            )
            self._server_handle = server.remote(str(self.model_config.path))
            self.servers = [self._server_handle]
            self._server_address = await self._server_handle.launch.remote()

    return ScriptedReplica


def rollout_class() -> Any:
    from verl.workers.rollout.base import BaseRollout
    from verl.workers.rollout.utils import ensure_async_iterator

    class ScriptedRollout(BaseRollout):
        """What a training worker sends weights with: writes down what it is given."""

        def __init__(self, *args: Any, replica_rank: int = -1, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.replica_rank = replica_rank if replica_rank >= 0 else int(os.environ["RANK"])
            self.is_leader_rank = True

        async def resume(self, tags: list[str]) -> None: ...

        async def release(self) -> None: ...

        async def update_weights(self, weights: Any, global_steps: int | None = None, **_: Any) -> None:
            squares = {}
            async for name, tensor in ensure_async_iterator(weights):
                whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
                squares[name] = float(whole.detach().double().square().sum())
            if global_steps is None:
                return
            total = sum(squares[name] for name in sorted(squares))
            write_down({"step": global_steps, "tensors": len(squares), "squares": total})
            await ray.get_actor(f"scripted_server_{self.replica_rank}").set_global_steps.remote(global_steps)

    return ScriptedRollout


def _replicas(module: Any) -> None:
    module.get_rollout_replica_class = lambda *_, **__: replica_class()


def _rollouts(module: Any) -> None:
    module.get_rollout_class = lambda *_, **__: rollout_class()


def _client(module: Any) -> None:
    """Each request says whose it is."""
    original = module.LLMServerClient.generate

    @functools.wraps(original)
    async def generate(self: Any, request_id: str, *, sampling_params: dict[str, Any], **more: Any) -> Any:
        from scripted_engine import session

        return await original(self, request_id, sampling_params={**sampling_params, "session": session.get()}, **more)

    module.LLMServerClient.generate = generate


def _worker(module: Any) -> None:
    original = module.AgentLoopWorker._run_agent_loop

    @functools.wraps(original)
    async def run(self: Any, sampling_params: Any, trajectory: Any, **row: Any) -> Any:
        from scripted_engine import session

        drawn = uuid.UUID(row["uid"]).int & (2**64 - 1)
        session.set({"validate": bool(trajectory["validate"]), "number": drawn, "session": int(row["session_id"])})
        return await original(self, sampling_params, trajectory, **row)

    module.AgentLoopWorker._run_agent_loop = run


def _queue(module: Any) -> None:
    """The trainer reads trajectories in the order of their prompts; in synchronous training, when all are there."""
    original = module.kv_list

    @functools.wraps(original)
    def kv_list(*args: Any, **kwargs: Any) -> Any:
        until = time.monotonic() + LONGEST_WAIT_S
        while True:
            partitions = original(*args, **kwargs) or {}
            tags = [tag for its in partitions.values() for tag in its.values() if tag.get("is_prompt")]
            waits = not SCRIPT["ahead"] and any(tag["status"] in ("pending", "running") for tag in tags)
            if not waits or time.monotonic() > until:
                return {name: dict(sorted(its.items())) for name, its in sorted(partitions.items())}
            time.sleep(0.02)

    module.kv_list = kv_list


_places: dict[str, int] = {}
_first = (SCRIPT.get("resumed", 0) + 1) * SCRIPT["ahead"]["prompts"] if SCRIPT["ahead"] and SCRIPT.get("resumed") else 0
"""Prompts that the checkpoint's run has drawn: an asynchronous one is a step ahead, and keeps them with their uids."""
_drawn: Counter[str] = Counter()
_uuid4 = uuid.uuid4


def uuid4() -> uuid.UUID:
    """For verl's trainer, the number of calls from this place in the code; for everything else a random one."""
    frame = sys._getframe(1)
    if not frame.f_globals.get("__name__", "").startswith(DRAWS_UIDS):
        return _uuid4()
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    _drawn[place] += 1
    return uuid.UUID(int=(_places.setdefault(place, len(_places) + 1) << 64) + _first + _drawn[place] - 1)


uuid.uuid4 = uuid4
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
for _module, _action in (
    ("verl.workers.rollout.replica", _replicas),
    ("verl.workers.rollout.base", _rollouts),
    ("verl.workers.rollout.llm_server", _client),
    ("verl.experimental.agent_loop.agent_loop", _worker),
    ("transfer_queue", _queue),
):
    wrapt.register_post_import_hook(_action, _module)
