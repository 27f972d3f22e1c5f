"""An engine that has no model, and instead answers each request with the next turn of a script.

The engine offers verl's `generate` in this process; over HTTP it offers vLLM's chat completions with token ids and
vLLM's `/inference/v1/generate`. Every turn has different log-probs, so a trained token's log-prob identifies its turn.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from agent_rl.agents.episode.policy import Generation, cut_at_stop
from agent_rl.agents.sessions.chat import chat_answer, chat_events, chat_request
from agent_rl.agents.sessions.server import PortServer
from agent_rl.agents.sessions.session import read_turn
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.tools.declared import declared_functions

MODEL = "policy"
LONGEST = 100_000  # maximum number of tokens in a prompt sent over HTTP


@dataclass
class ScriptedTurn:
    """A turn of the script; the fields after `versions` are set when a request starts the turn."""

    text: str
    versions: tuple[int, int] | None = None
    """The first and the last version of the weights during the turn; None means the engine's version at that time."""
    number: int = -1
    params: Mapping[str, Any] = field(default_factory=dict)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Engine:
    """Plays one turn of a script per request; after the last turn of the script, every turn is "OK.".

    Attributes:
        played: the turns so far; `by_prompt` maps a prompt's token ids to the turns that followed the prompt.
        version: the version of the weights.
        free: an event; the engine finishes turns only while the event is set.
        url: the server's address, set by `start`.
    """

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.reset()

    @cached_property
    def tokenizer(self) -> Any:
        """A tokenizer in Qwen2's format, which ends turns with `<|im_end|>`."""
        from agent_rl.cpu.tiny_model import CORPUS, make_tokenizer

        with tempfile.TemporaryDirectory() as folder:
            tokenizer = make_tokenizer(CORPUS, folder)
        tokenizer.add_tokens(
            [f"<{end}{name}>" for name in ("think", "tool_call", "tool_response") for end in ("", "/")]
        )
        return tokenizer

    def reset(self, *turns: str | ScriptedTurn) -> None:
        """Forget all turns, and start with a new script."""
        self.played: list[ScriptedTurn] = []
        self.by_prompt: defaultdict[tuple[int, ...], list[ScriptedTurn]] = defaultdict(list)
        self.script = deque(turn if isinstance(turn, ScriptedTurn) else ScriptedTurn(turn) for turn in turns)
        self.version = 1
        self.free.set()

    async def generate(
        self, request_id: str, *, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], **media: Any
    ) -> Any:
        """Play a turn, and return an object with the fields of verl's `TokenOutput`."""
        turn = self.script.popleft() if self.script else ScriptedTurn("OK.")
        text = cut_at_stop(turn.text, sampling_params.get("stop") or (), keep_stop=True)
        ids, finish = self.tokenizer.encode(text), "stop"
        if text == turn.text:
            ids.append(self.tokenizer.eos_token_id)
        limits = (sampling_params.get(name) for name in ("max_new_tokens", "max_completion_tokens", "max_tokens"))
        if (most := next(filter(None, limits), len(ids))) < len(ids):
            ids, finish = ids[:most], "length"
        turn.number, turn.params, turn.token_ids = len(self.played), sampling_params, ids
        turn.logprobs = [-1.0 - turn.number - place / 4096 for place in range(len(ids))]
        self.played.append(turn)
        self.by_prompt[tuple(prompt_ids)].append(turn)
        await self.free.wait()
        first, last = turn.versions or (self.version, self.version)
        steps = {"global_steps": last, "min_global_steps": first, "max_global_steps": last}
        logprobs = turn.logprobs if sampling_params.get("logprobs") else None
        fields = {"stop_reason": finish, "num_preempted": 0, "routed_experts": None, "extra_fields": steps}
        return SimpleNamespace(token_ids=ids, log_probs=logprobs, **fields)

    async def start(self) -> None:
        """Start the HTTP server on a loopback port."""
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/inference/v1/generate", self._tokens, methods=["POST"]),
            Route("/v1/models", lambda _: JSONResponse({"data": [{"id": MODEL, "max_model_len": LONGEST}]})),
            Route("/health", lambda _: Response()),
        ]
        _ = self.tokenizer  # load the tokenizer before a gateway watches the server's health
        self._server = PortServer(Starlette(routes=routes))
        self._server.start()
        self.url = f"http://127.0.0.1:{self._server.port}"

    async def stop(self) -> None:
        """Stop the HTTP server."""
        await self._server.stop()

    async def _tokens(self, request: Request) -> Response:
        body = await request.json()
        output = await self.generate("", prompt_ids=body["token_ids"], sampling_params=body["sampling_params"])
        return JSONResponse({"request_id": body.get("request_id"), "choices": [_choice(output)]})

    async def _chat(self, request: Request) -> Response:
        try:
            body = await request.json()
            turn_request = chat_request({**body, "n": 1, "response_format": None})
            text = self.tokenizer.apply_chat_template(turn_request.messages, tokenize=False, add_generation_prompt=True)
            if len(prompt_ids := self.tokenizer.encode(text)) > LONGEST:
                raise ValueError(f"This model's maximum context length is {LONGEST} tokens.")
        except Exception as error:  # noqa: BLE001 - the client sent a conversation that cannot be rendered
            return JSONResponse({"error": {"message": str(error), "type": "BadRequestError", "code": 400}}, 400)
        output = await self.generate("", prompt_ids=prompt_ids, sampling_params={**body, "stop": turn_request.stop})
        text = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
        turn = Generation(cut_at_stop(text, turn_request.stop), len(output.token_ids), output.stop_reason)
        specs = declared_functions([tool["function"] for tool in turn_request.tools])
        _, reply = read_turn(turn, ToolCallFormat(), specs, len(prompt_ids))
        choice = {**_choice(output), "finish_reason": reply.finish}
        if not body.get("stream"):
            answer = chat_answer(reply, body)
            answer["choices"] = [answer["choices"][0] | choice]
            return JSONResponse({**answer, "prompt_token_ids": prompt_ids})
        first, *events = chat_events(reply, body)
        start = json.loads(first.removeprefix("data: "))
        start["choices"] = [{**choice, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
        start = f"data: {json.dumps({**start, 'prompt_token_ids': prompt_ids})}\n\n"
        return StreamingResponse(iter([start, *events]), media_type="text/event-stream")


def _choice(output: Any) -> dict[str, Any]:
    """Return the fields of a choice that the answers of both routes have."""
    pairs = zip(output.token_ids, output.log_probs or (), strict=False)
    shown = [{"token": f"token_id:{token}", "logprob": logprob, "top_logprobs": []} for token, logprob in pairs]
    logprobs = None if output.log_probs is None else {"content": shown}
    return {"index": 0, "finish_reason": output.stop_reason, "token_ids": output.token_ids, "logprobs": logprobs}
