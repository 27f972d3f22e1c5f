"""A judge on loopback: an OpenAI-compatible endpoint whose replies, and faults, a test chooses."""

import json
import re
from collections.abc import Callable
from typing import Any

from agent_rl.rewards.component import Component, GroupComponent
from agent_rl.trajectory import Message, StopReason, Trajectory, Turn
from tests.support.http_faults import FaultyServer, answer

FENCED = re.compile(r"^<<<answer(?: [AB])? (\w+)>>>\n(.*?)\n<<<end of", re.DOTALL | re.MULTILINE)


def completion(text: str | None, tokens: int | None = 10) -> dict[str, Any]:
    usage = {} if tokens is None else {"usage": {"total_tokens": tokens}}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], **usage}


def says(*texts: str | None, tokens: int | None = 10) -> list[Callable[[Any], None]]:
    """Steps of a server: one reply each."""
    return [answer(200, completion(text, tokens)) for text in texts]


def judging(verdict: Callable[[dict[str, Any]], str]) -> Callable[[Any], None]:
    """A step that says what `verdict` makes of the request's body."""
    return lambda handler: answer(200, completion(verdict(json.loads(handler.body))))(handler)


def answers_in(body: dict[str, Any]) -> list[str]:
    """What the judge finds fenced as answers, without the fence."""
    found = FENCED.findall(body["messages"][-1]["content"])
    return ["\n".join(line[2:] for line in text.split("\n")) for _, text in found]


def bodies(server: FaultyServer) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in server.requests]


def made(kind: type[Any], server: FaultyServer, **config: Any) -> Any:
    """A component that asks the server."""
    assert issubclass(kind, Component | GroupComponent)
    return kind("helpful", kind.Config.model_validate({"url": server.url, "model": "m", **config}))


def trajectory(answer: str | None = "It is 4.", **more: Any) -> Trajectory:
    return Trajectory(
        prompt=[Message("system", "Use tools."), Message("user", "What is 2 + 2?")],
        turns=[Turn(text=f"I think. {answer}")],
        answer=answer,
        ground_truth=more.pop("ground_truth", "4"),
        stop_reason=StopReason.ANSWERED,
        **more,
    )
