"""Any OpenAI-compatible chat endpoint as a policy: vLLM, SGLang, a hosted model or a gateway.

For every turn the endpoint renders the whole conversation again and counts the tokens. Estimated counts are not exact
enough for training, so this policy is only for evaluation. Until the next response, an observation's tokens are
estimated from its characters. If the endpoint reports no usage, all token counts are 0.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.agents.episode.budget import UNLIMITED
from agent_rl.agents.episode.format import Format
from agent_rl.agents.episode.policy import ChatMessage, Generation, Policy, cut_at_stop
from agent_rl.agents.policies.source import PolicySource, PolicyUsage, Sampling
from agent_rl.agents.syntaxes.reading import call_from
from agent_rl.errors import EngineError, MalformedActionError, UnscoredError
from agent_rl.remote import ChatClient, RemoteError
from agent_rl.remote.chat_client import TooLongError
from agent_rl.tools.truncation import encodable
from agent_rl.trajectory import Message, ToolCall


class ChatEndpoint(PolicySource):
    """A model behind an OpenAI-compatible endpoint.

    Args:
        client: the client for the model's server.
        sampling: the sampling parameters.
    """

    client: ChatClient

    def __init__(self, client: ChatClient, sampling: Sampling) -> None:
        self.client, self.sampling = client, sampling

    def policy(self, usage: PolicyUsage, seed: int | None = None, format: Format | None = None) -> ChatPolicy:
        """Start a new conversation; the endpoint handles special tokens."""
        return ChatPolicy(self, usage, seed)


class ChatPolicy(Policy):
    """One conversation with the endpoint; each request sends `messages`."""

    def __init__(self, endpoint: ChatEndpoint, usage: PolicyUsage, seed: int | None = None) -> None:
        self.messages: list[ChatMessage] = []
        self._endpoint, self._usage, self._seed = endpoint, usage, seed
        self.sampling = endpoint.sampling.model_dump(exclude_none=True) | endpoint.sampling.body
        self._tools: list[dict[str, Any]] = []
        self._first = 0  # number of prompt tokens; 0 before the first answer
        self._grown = 0  # number of tokens after the prompt
        self.earlier_tokens: list[int] = []
        self._pending = 0  # estimated number of tokens appended since the last answer
        self._per_character = 0.0  # mean number of tokens per character so far

    def sibling(self, *, is_trained: bool = True) -> ChatPolicy:
        """Return a fresh conversation with the endpoint."""
        return ChatPolicy(self._endpoint, self._usage, self._seed)

    async def begin(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> None:
        """Store the prompt, which the first request sends; calling this method again starts a new conversation."""
        self.messages, self._tools = [*map(_sendable, messages)], list(tools)
        self.earlier_tokens.append(self._grown)
        self._first = self._grown = self._pending = 0

    async def generate(self, stop: Sequence[str] = (), *, keep_stop: bool = False) -> Generation:
        """Request one turn.

        Raises:
            EngineError: the endpoint failed.
            ConfigError: before its first answer, the endpoint rejected the API key or the model.
            UnscoredError: the prompt exceeds the endpoint's context or `max_prompt_tokens`.
        """
        left = self._left() if self.most is None else min(self.most, self._left())
        if left <= 0:  # the last observation used up the token budget
            return Generation("", 0, "length")
        try:
            completion = await self._endpoint.client.chat(self._body(left, stop))
        except TooLongError as error:
            if self._first:
                return Generation("", 0, "length")
            raise UnscoredError(
                f"the prompt and max_response_tokens={self._endpoint.sampling.max_response_tokens} exceed the "
                f"endpoint's context ({error.problem})"
            ) from None
        except RemoteError as error:
            raise EngineError(str(error)) from error
        finish = completion.finish
        text = encodable(completion.text)
        if keep_stop and finish == "stop":
            text = _with_stop(text, stop, completion.matched_stop)
        text = cut_at_stop(text, stop, keep_stop)
        if any(each in text for each in stop):
            finish = "stop"  # the stop string ends the turn, regardless of later text
        raw = completion.message.get("tool_calls") or []
        calls = _calls(raw)
        if raw and (calls is None or finish == "length"):  # such calls get no results, which endpoints require
            text, raw = "\n".join([text, *map(_as_text, raw)]).strip(), []
        self.messages.append({"role": "assistant", "content": text, **({"tool_calls": raw} if raw else {})})
        tokens = self._count(completion.usage)
        return Generation(text, tokens, "length" if finish == "length" else "stop", calls)

    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        """Append the environment's messages; each tool result gets the id of its call, in order."""
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
        return {
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

    def _count(self, usage: Mapping[str, Any]) -> int:
        """Update the token totals; return the number of tokens sampled in the turn."""
        prompt, sampled = (int(usage.get(key) or 0) for key in ("prompt_tokens", "completion_tokens"))
        self._usage.requests += 1
        self._usage.input_tokens += prompt
        limit = self._endpoint.sampling.max_prompt_tokens or UNLIMITED
        if not self.prompt_tokens and prompt > limit:
            raise UnscoredError(f"the prompt has {prompt} tokens, more than sampling.max_prompt_tokens={limit}")
        self.prompt_tokens = self.prompt_tokens or prompt
        self._first = self._first or min(prompt, limit)  # after a restart, excess tokens count as response tokens
        self._grown = max(self._grown, prompt + sampled - self._first)
        self._pending = 0
        self._per_character = (prompt + sampled) / max(1, _characters(self.messages))
        self.response_tokens = sum(self.earlier_tokens) + self._grown
        return sampled


def _with_stop(text: str, stop: Sequence[str], matched: Any) -> str:
    """Append the stop string that the server removed: the reported string, or the closing tag for an unclosed tag."""
    if not isinstance(matched, str):
        opened = (each for each in stop if each.startswith("</") and text.count(f"<{each[2:]}") > text.count(each))
        matched = next(opened, "")
    return text + matched if matched in stop else text


def _characters(messages: Sequence[ChatMessage]) -> int:
    return sum(len(Message.from_chat(message).content) for message in messages)


def _sendable(message: ChatMessage) -> ChatMessage:
    """Return the message with its images in the form that OpenAI's API expects."""
    if isinstance(message["content"], str) or not message["content"]:
        return message
    return {**message, "content": [_part(part) if "image" in part else part for part in message["content"]]}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    png = io.BytesIO()
    part["image"].save(png, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def _calls(raw: Sequence[Any]) -> list[ToolCall] | None:
    """Return the endpoint's tool calls; None means that there are none, or that one of them cannot be read."""
    try:
        functions = [(call, call["function"]) for call in raw]
        return [
            call_from({"id": call.get("id"), "name": each["name"], "arguments": each["arguments"] or {}}, "arguments")
            for call, each in functions
        ] or None
    except (KeyError, TypeError, AttributeError, MalformedActionError):
        return None


def _as_text(call: Any) -> str:
    """Return a tool call in the syntax that Hermes models use."""
    function = call.get("function") if isinstance(call, dict) else None
    name, arguments = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else ("", call)
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'
