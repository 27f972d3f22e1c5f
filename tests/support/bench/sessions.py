"""The other side of the gateway's benchmark, in a process of its own.

python -m tests.support.bench.sessions talk URL KEY...     # sessions that talk at once, each until its last turn
python -m tests.support.bench.sessions answer              # a server of chat completions for a proxy; prints its port
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiohttp
from aiohttp import web

TURNS = 8
RESULT = "The next number is forty two, and after that comes another one, which is larger than {}. " * 4
CALL = '<tool_call>\n{"name": "next", "arguments": {"after": "%d"}}\n</tool_call>'
TURN = f"I think about it, and ask for the next number. {CALL}"
LAST = "These were all of the numbers."
TOOL = {
    "type": "function",
    "function": {
        "name": "next",
        "description": "Return the next number.",
        "parameters": {"type": "object", "properties": {"after": {"type": "string"}}, "required": ["after"]},
    },
}
QUESTION = "Which numbers are there? " * 8


async def talk(url: str, key: str) -> None:
    """Hold one conversation; the connection is kept."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"{QUESTION} {key}"}]
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(600)) as client:
        for number in range(TURNS):
            body = {"model": "policy", "messages": messages, "tools": [TOOL]}
            async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
                message = (await answer.json())["choices"][0]["message"]
            messages.append(message)
            assert bool(message.get("tool_calls")) == (number < TURNS - 1), message
            messages += [
                {"role": "tool", "tool_call_id": call["id"], "content": RESULT.replace("{}", f"{key[:6]} {number}")}
                for call in message.get("tool_calls") or ()
            ]


async def talk_at_once(url: str, keys: list[str]) -> None:
    await asyncio.gather(*(talk(url, key) for key in keys))


async def complete(request: web.Request) -> web.Response:
    """Answer as the gateway does, without any work."""
    number = sum(message["role"] == "assistant" for message in (await request.json())["messages"])
    function = {"name": "next", "arguments": json.dumps({"after": str(number)})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    message: dict[str, Any] = {"role": "assistant", "content": LAST}
    if number < TURNS - 1:
        message |= {"content": TURN.partition(" <")[0], "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return web.json_response({"object": "chat.completion", "choices": [choice], "model": "policy"})


async def answer() -> None:
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)  # type: ignore[union-attr]
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(talk_at_once(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "talk" else answer())
