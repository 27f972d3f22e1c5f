"""Any OpenAI-compatible chat endpoint as a policy: vLLM, SGLang, a hosted model, a gateway.

The endpoint renders the conversation anew for every turn and counts the tokens, so this is for evaluation and not
exact enough to train on. What an observation costs is estimated by the conversation's tokens for each character until
the next turn has been answered. Where the endpoint reports no usage, tokens count as 0.
"""

from __future__ import annotations

import base64
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import ChatMessage, Generation, Policy, cut_at_stop
from agent_rl.agents.syntaxes.reading import read_json
from agent_rl.errors import ConfigError, EngineError, UnscoredError, did_you_mean
from agent_rl.policies.source import PolicySource, PolicyUsage, Sampling, open_remote, reach
from agent_rl.remote import Remote, RemoteError
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Message, ToolCall

__all__ = ["ChatEndpoint", "ChatPolicy"]

_TOO_LONG = re.compile(r"context[ _]length|context window|maximum context|longer than the model|too many tokens", re.I)
"""How servers say that a conversation does not fit; OpenAI's code is context_length_exceeded."""

_REFUSED = {
    401: ("the endpoint wants an API key", "Name the environment variable that holds it: api_key_env=MY_KEY"),
    403: ("the endpoint refuses this API key", "Mend the key that api_key_env names"),
    404: ("the endpoint has no such address or model", "Mend endpoint and model"),
}


class TooLongError(Exception):
    """The conversation is longer than the endpoint's context; its words are the message."""


class ChatEndpoint(PolicySource):
    """One model behind one address.

    Args:
        url: of the server; `/v1` is added where no path is given.
        model: its name there.
        sampling: how turns are sampled.
        api_key_env: environment variable that holds the API key; None: none is sent.
        concurrency: requests at one time.
        timeout_s: seconds of one attempt of a request.

    Raises:
        ConfigError: see `open_remote`.
    """

    remote: Remote

    def __init__(
        self,
        url: str,
        model: str,
        sampling: Sampling,
        *,
        api_key_env: str | None = None,
        concurrency: int = 64,
        timeout_s: float = 600,
    ) -> None:
        base = url.rstrip("/")
        base += "" if "/" in base.partition("://")[2] else "/v1"
        self.remote = open_remote(base, api_key_env=api_key_env, concurrency=concurrency, timeout_s=timeout_s)
        self.url, self.model, self.sampling = base, model, sampling

    async def check(self) -> None:
        """Ask for the list of models, where the endpoint has one.

        Raises:
            ConfigError: nobody answers, the key is refused, or the model is not on the list.
        """
        answer = await reach(self.remote, self.url, "/models")
        if answer.status in (401, 403):
            raise ConfigError("endpoint", *_REFUSED[answer.status])
        try:
            names = [str(model["id"]) for model in answer.json()["data"]] if answer.ok else []
        except (RemoteError, TypeError, KeyError):
            names = []
        if names and self.model not in names:
            raise ConfigError("model", f"{self.url} has no model {self.model!r}", did_you_mean(self.model, names))

    def policy(self, usage: PolicyUsage, seed: int | None = None, format: Format | None = None) -> ChatPolicy:
        """A fresh conversation; special tokens are the endpoint's business."""
        return ChatPolicy(self, usage, seed)

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The endpoint's answer to a request.

        Raises:
            TooLongError: the conversation is longer than the endpoint's context.
            EngineError: no usable answer.
            ConfigError: an answer that every request would get.
        """
        try:
            answer = await self.remote.post_json("/chat/completions", body)
        except RemoteError as error:
            if error.status in _REFUSED:
                problem, remedy = _REFUSED[error.status]
                raise ConfigError("endpoint", f"{self.url}: {problem} ({error.problem})", remedy) from None
            if error.status in (400, 413, 422) and _TOO_LONG.search(error.problem):
                raise TooLongError(error.problem) from None
            raise EngineError(str(error)) from error
        if not isinstance(answer, dict):
            raise EngineError(f"{self.url}: the answer is not an object")
        return answer


class ChatPolicy(Policy):
    """One conversation with the endpoint; `messages` are what it is sent."""

    def __init__(self, endpoint: ChatEndpoint, usage: PolicyUsage, seed: int | None = None) -> None:
        self.messages: list[ChatMessage] = []
        self._endpoint, self._usage, self._seed = endpoint, usage, seed
        self._tools: list[dict[str, Any]] = []
        self._first = 0  # tokens of the conversation's prompt; 0 before its first answer
        self._grown = 0  # tokens of the conversation beyond that
        self._earlier = 0  # the same of conversations that were left behind
        self._pending = 0  # tokens of what was appended since the last answer, estimated
        self._per_character = 0.0  # tokens, in the conversation so far

    async def begin(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> None:
        """Keep the prompt, which the endpoint sees with the first turn; called again, start a new conversation."""
        self.messages, self._tools = [*map(_sendable, messages)], list(tools)
        self._earlier += self._grown
        self._first = self._grown = self._pending = 0

    async def generate(self, stop: Sequence[str] = (), *, keep_stop: bool = False) -> Generation:
        """Ask for one turn.

        Raises:
            EngineError: the endpoint fails.
            UnscoredError: the prompt does not fit the endpoint's context.
        """
        left = self._left()
        if left <= 0:  # the observation has used up what was left
            return Generation("", 0, "length")
        try:
            answer = await self._endpoint.complete(self._body(left, stop))
        except TooLongError as error:
            if self._first:
                return Generation("", 0, "length")
            raise UnscoredError(
                f"prompt and max_response_tokens={self._endpoint.sampling.max_response_tokens} do not fit the "
                f"endpoint's context ({error})"
            ) from None
        message, finish, matched = _first_choice(answer)
        said = encodable(message.get("content") or "")
        if keep_stop and finish == "stop":
            said = _with_stop(said, stop, matched)
        text = cut_at_stop(said, stop, keep_stop)
        if any(each in said for each in stop):
            finish = "stop"  # whatever followed
        raw = message.get("tool_calls") or []
        self.messages.append({"role": "assistant", "content": text, **({"tool_calls": raw} if raw else {})})
        tokens = self._count(answer.get("usage"))
        calls = _calls(raw)
        if raw and calls is None:  # for the format to say what is wrong with them
            text = "\n".join([text, *map(_as_text, raw)]).strip()
        return Generation(text, tokens, "length" if finish == "length" else "stop", calls)

    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        """Append the environment's messages; results of the endpoint's own tool calls get the calls' ids, in order."""
        estimate = math.ceil(self._per_character * _characters(messages))
        if estimate >= self._left():
            return False
        self._pending += estimate
        ids = [call.get("id") for call in self.messages[-1].get("tool_calls", ())]
        for message in messages:
            if message["role"] == "tool" and ids:
                message = {"tool_call_id": ids.pop(0), **message}
            self.messages.append(_sendable(message))
        return True

    def _left(self) -> int:
        return self._endpoint.sampling.max_response_tokens - self.reserve - self._grown - self._pending

    def _body(self, left: int, stop: Sequence[str]) -> dict[str, Any]:
        sampling = self._endpoint.sampling
        body = {
            "model": self._endpoint.model,
            "messages": self.messages,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "max_tokens": left,
            "seed": self._seed,
            "stop": list(stop) or None,
            "tools": self._tools or None,
            **sampling.body,
        }
        return {key: value for key, value in body.items() if value is not None}

    def _count(self, usage: Any) -> int:
        """Sampled tokens of the turn; the totals are brought up to date."""
        usage = usage if isinstance(usage, dict) else {}
        prompt, sampled = (int(usage.get(key) or 0) for key in ("prompt_tokens", "completion_tokens"))
        self._usage.requests += 1
        self._usage.input_tokens += prompt
        self.prompt_tokens = self.prompt_tokens or prompt
        self._first = self._first or prompt
        self._grown = max(self._grown, prompt + sampled - self._first)
        self._pending = 0
        self._per_character = (prompt + sampled) / max(1, _characters(self.messages))
        self.response_tokens = self._earlier + self._grown
        return sampled


def _first_choice(answer: dict[str, Any]) -> tuple[dict[str, Any], str | None, Any]:
    """Message, finish reason, and the stop string that ended it, where the server says so (vLLM and SGLang do).

    Raises:
        EngineError: there is none, or the engine has given the request up.
    """
    try:
        choice = answer["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        if not isinstance(message, dict) or not isinstance(message.get("content") or "", str):
            raise TypeError
    except (KeyError, IndexError, TypeError, AttributeError):
        raise EngineError("the endpoint's answer has no message") from None
    if finish in ("abort", "error"):
        raise EngineError(f"the endpoint ended the turn with {finish!r}")
    return message, finish, choice.get("matched_stop", choice.get("stop_reason"))


def _with_stop(text: str, stop: Sequence[str], matched: Any) -> str:
    """The text with the stop string that ended it, which servers leave out: that they name, or the tag left open."""
    if not isinstance(matched, str):
        opened = (each for each in stop if each.startswith("</") and text.count(f"<{each[2:]}") > text.count(each))
        matched = next(opened, "")
    return text + matched if matched in stop else text


def _characters(messages: Sequence[ChatMessage]) -> int:
    """Of the text."""
    return sum(len(Message.from_chat(message).content) for message in messages)


def _sendable(message: ChatMessage) -> ChatMessage:
    """The message with its images as OpenAI's interface takes them."""
    if isinstance(message["content"], str) or not message["content"]:
        return message
    return {**message, "content": [_part(part) if "image" in part else part for part in message["content"]]}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    png = io.BytesIO()
    part["image"].save(png, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _calls(raw: Sequence[Any]) -> list[ToolCall] | None:
    """The endpoint's tool calls; None when there are none, or one cannot be read."""
    calls = []
    for call in raw:
        try:
            arguments = call["function"]["arguments"] or {}
            arguments = read_json(arguments if isinstance(arguments, str) else json.dumps(arguments))
            if not isinstance(arguments, dict):
                return None
            calls.append(ToolCall(str(call["function"]["name"]), arguments, str(call.get("id") or "")))
        except (KeyError, TypeError, AttributeError, ValueError):
            return None
    return calls or None


def _as_text(call: Any) -> str:
    """A call as models of the Hermes family write it."""
    function = call.get("function") if isinstance(call, dict) else None
    name, arguments = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else ("", call)
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'
