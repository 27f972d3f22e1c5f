"""Serves an `InterceptionServer` of verifiers, with routes that open and close rollouts; it needs verifiers only.

python verifiers_program.py PORT ENGINE_URL TOKENIZER MODEL
"""

# mypy: ignore-errors

import asyncio
import sys

from aiohttp import web
from renderers import Qwen3RendererConfig
from verifiers.v1.agent import AgentConfig
from verifiers.v1.clients.client import ModelContext
from verifiers.v1.configs.client import TrainClientConfig
from verifiers.v1.interception import InterceptionServer
from verifiers.v1.session import RolloutSession
from verifiers.v1.task import TaskData
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import SamplingConfig

port, url, tokenizer, model = sys.argv[1:]
renderer = Qwen3RendererConfig()
client = TrainClientConfig(base_url=f"{url}/v1", api_key_var="NO_KEY", renderer=renderer, renderer_model_name=tokenizer)
rollouts = {}


async def main():
    async with InterceptionServer() as server:

        async def start(request):
            options = await request.json()
            context = ModelContext(model, client, SamplingConfig(temperature=options["temperature"], top_p=1.0))
            trace = Trace(task=TraceTask(type="Task", data=TaskData()), agent=AgentInfo(config=AgentConfig()))
            key, state = server.register(RolloutSession(ctx=context, trace=trace))
            rollouts[key] = trace, state
            return web.json_response({"base_url": server.base_url, "key": key})

        async def close(request):
            key = request.match_info["key"]
            server.unregister(key, rollouts[key][1])
            return web.json_response({})

        async def branches(request):
            trace, _ = rollouts[request.match_info["key"]]
            kept = [branch for branch in trace.branches if branch.trainable]
            return web.json_response(
                [
                    {"ids": each.token_ids, "mask": [int(m) for m in each.sampled_mask], "logprobs": each.logprobs}
                    for each in kept
                ]
            )

        app = web.Application()
        app.router.add_get("/health", lambda _: web.json_response({}))
        app.router.add_post("/open", start)
        app.router.add_post("/close/{key}", close)
        app.router.add_get("/branches/{key}", branches)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", int(port)).start()
        await asyncio.Event().wait()


asyncio.run(main())
