"""The checks' HTTP client, which uses no SDK, and the comparison of trained tokens with the engine's tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

import httpx

from agent_rl.conformance import Driver, OpenSession, TrainedSequence, Unsupported
from agent_rl.conformance.engine import MODEL, Engine, ScriptedTurn
from agent_rl.trajectory.trace.tokens import sampled_runs

CHAT = "/v1/chat/completions"
STOP = "STOP"
"""The stop string that the checks send; a gateway may cut the engine's turn after this string."""


class Fault(Exception):
    """The gateway did not behave as a check requires."""


def expect(condition: object, problem: str) -> None:
    """Raise Fault unless the condition is true."""
    if not condition:
        raise Fault(problem)


def equal(actual: object, expected: object, what: str) -> None:
    """Raise Fault unless both values are equal."""
    expect(actual == expected, f"{what}: {actual!r:.300} instead of {expected!r:.300}")


class Checks:
    """A group of checks. Each coroutine function of a subclass is one check, whose docstring states the requirement."""

    needs_driver = True
    """Whether the checks need the engine and the training sequences, in addition to an address."""

    def __init__(self, gateway: Driver | OpenSession, engine: Engine) -> None:
        self.gateway, self.engine, self.connections = gateway, engine, AsyncExitStack()

    async def play(self, *turns: str | ScriptedTurn, **run: Any) -> Client:
        """Reset the engine to a script of these turns, and open a session for a run with these settings."""
        self.engine.reset(*turns)
        return await self.session(**run)

    async def session(self, **run: Any) -> Client:
        """Open another session."""
        gateway = self.gateway
        return Client(self, gateway if isinstance(gateway, OpenSession) else await gateway.session(**run))

    async def generating(self, *requests: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
        """Start requests, and return while their turns are being generated; the turns end when `engine.free` is set."""
        self.engine.free.clear()
        tasks, played = [asyncio.ensure_future(request) for request in requests], len(self.engine.played)
        while len(self.engine.played) < played + len(tasks) and not any(task.done() for task in tasks):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return tasks

    async def noticed(self) -> None:
        """Wait until the gateway has noticed a request or a closed connection, then let the engine generate."""
        await asyncio.sleep(0.1)
        self.engine.free.set()


class Client:
    """A client that has its own connections and uses the key of one session."""

    def __init__(self, checks: Checks, session: OpenSession) -> None:
        self.session, self._engine, self._driver = session, checks.engine, checks.gateway
        self._http = httpx.AsyncClient(timeout=None, verify=False, trust_env=False)
        checks.connections.push_async_callback(self._http.aclose)

    async def send(
        self, body: Any, path: str = CHAT, headers: Any = None, key: str | None = None, stream: bool = False
    ) -> httpx.Response:
        """Send a body with this key (default: the session's); raise Unsupported if the gateway has no such route."""
        key = self.session.key if key is None else key
        keys = {"authorization": f"Bearer {key}", "x-api-key": key} if key else {}
        content = body if isinstance(body, bytes) else json.dumps({"model": MODEL, **body}).encode()
        sent = {"content-type": "application/json", **keys, **(headers or {})}
        request = self._http.build_request("POST", f"{self.session.base_url}{path}", content=content, headers=sent)
        response = await self._http.send(request, stream=stream)
        if response.status_code in (404, 405, 501) and path != CHAT:
            raise Unsupported(f"{path} is answered with status {response.status_code}")
        return response

    async def post(self, path: str, headers: Any = None, key: str | None = None, status: int = 200, **body: Any) -> Any:
        """Send a request, check the status of the answer, and return the answer's body."""
        response = await self.send(body, path, headers, key)
        equal(response.status_code, status, f"status of the answer {response.text:.200}")
        return response.json()

    async def talk(
        self, *messages: Mapping[str, Any], says: str | None = None, finish: str | None = None, **options: Any
    ) -> list[Any]:
        """Return a conversation with the answer to it; check the answer's text and finish reason, if they are given."""
        body = await self.post(CHAT, messages=messages, **options)
        for choice in body.get("choices") or ():
            answer = choice["message"].get("content"), choice["finish_reason"]
            expect(says in (None, answer[0]) and finish in (None, answer[1]), f"the answer is {answer}")
            messages += (choice["message"],)
        return list(messages)

    async def events(
        self, *messages: Mapping[str, Any], most: int | None = None, path: str = CHAT, headers: Any = None, **body: Any
    ) -> list[tuple[str, Any]]:
        """Send a request, and return the name and data of each event in the stream; hang up after `most` events."""
        events, name, whole = list[tuple[str, Any]](), "", {"messages": messages, "stream": True, **body}
        async with aclosing(await self.send(whole, path, headers, stream=True)) as response:
            equal(response.status_code, 200, "status of the stream")
            async for line in response.aiter_lines():
                field, _, value = line.partition(":")
                data = value.removeprefix(" ")  # which the standard makes optional
                if field == "event":
                    name = data
                elif field == "data":
                    events.append((name, data if data == "[DONE]" else json.loads(data)))
                if len(events) == most:
                    break
        return events

    async def trains(self, *texts: str, sequences: int | None = None) -> list[TrainedSequence]:
        """End the session, check that the trained turns have these texts, and return the session's sequences."""
        assert isinstance(self._driver, Driver)
        await self._driver.finish(self.session)
        trained = await self._driver.sequences(self.session)
        equal([turn.text for turn in _sampled(trained, self._engine)], list(texts), "trained turns")
        expect(sequences in (None, len(trained)), f"{len(trained)} training sequences instead of {sequences}")
        return trained


def user(text: str) -> dict[str, Any]:
    """Return a user message with this text."""
    return {"role": "user", "content": text}


def called(name: str = "add", text: str = "I add.", **arguments: Any) -> str:
    """Return the text of a policy's turn that contains a call."""
    return f"{text}\n<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>".strip()


HELLO, ADD, CALL = user("Hello."), user("1 + 2?"), called(a=1, b=2)
TOOLS: list[Any] = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def results(conversation: Sequence[Mapping[str, Any]], *texts: str) -> list[dict[str, Any]]:
    """Return messages with these results for the calls in the last turn of a conversation."""
    pairs = zip(conversation[-1]["tool_calls"], texts, strict=True)
    return [{"role": "tool", "tool_call_id": call["id"], "content": text} for call, text in pairs]


def each(**cases: Any) -> Callable[[Any], Any]:
    """Decorate a function that takes one argument, so that it becomes one check for each case."""

    def with_cases(function: Any) -> Any:
        function.cases = cases
        return function

    return with_cases


def _sampled(sequences: Sequence[TrainedSequence], engine: Engine) -> list[ScriptedTurn]:
    """Return the engine's trained turns, in the order in which the engine played them."""
    trained: dict[int, ScriptedTurn] = {}
    for prompt, response, mask, logprobs, _ in sequences:
        equal({len(mask), len(response)}, {len(mask if logprobs is None else logprobs)}, "lengths")
        for first, last in sampled_runs(mask):
            own = None if logprobs is None else list(logprobs[first:last])
            turn = _turn(engine, (*prompt, *response[:first]), list(response[first:last]), own)
            expect(turn.number not in trained, f"{turn.text!r} is trained on twice")
            trained[turn.number] = turn
    return [trained[number] for number in sorted(trained)]


def _turn(engine: Engine, before: tuple[int, ...], tokens: list[int], logprobs: list[float] | None) -> ScriptedTurn:
    """Return the turn that the engine sampled after these tokens; turns with the same prompt differ in log-probs."""
    text = engine.tokenizer.decode(tokens)
    end = len(tokens) if text.endswith(STOP) else None
    played = [turn for turn in engine.by_prompt.get(before, ()) if turn.token_ids[:end] == tokens]
    same = [turn for turn in played if logprobs in (None, turn.logprobs[: len(tokens)])]
    expect(played, f"{text!r} is trained on after {engine.tokenizer.decode(before)!r:.200}, where it was not sampled")
    expect(same, f"{text!r} is trained on with log-probs that the engine did not return")
    expect(end or STOP not in same[0].text, f"{text!r} is trained on, although it contains a stop string")
    return same[0]
