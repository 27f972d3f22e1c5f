"""`Session`: answers one episode's requests to the policy, and keeps the exact tokens of its conversations.

Requests form a tree of messages. A request that continues a conversation appends to its tokens; any other request, such
as one with a rewritten history, starts a new conversation and a new training sequence. Each sampled token belongs to
one conversation only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from uuid import uuid4

from agent_rl.agents.episode.format import spoken, thoughts_of
from agent_rl.agents.episode.policy import ChatMessage, Generation, Policy
from agent_rl.agents.sessions.request import SAMPLING, RequestError, TurnReply, TurnRequest, function_call, message_key
from agent_rl.agents.syntaxes.json_calls import without_channels
from agent_rl.agents.tool_call import ToolCallFormat
from agent_rl.errors import ConfigError, MalformedActionError, UnscoredError
from agent_rl.tools import ToolSpec
from agent_rl.tools.declared import declared_functions
from agent_rl.trajectory import Message, StopReason, ToolCall, ToolResult, Trajectory, Turn

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Conversation:
    policy: Policy
    tools: Hashable
    is_trained: bool
    keys: list[Hashable] = field(default_factory=list)
    """Keys of the conversation's messages, including the policy's turns."""
    messages: list[ChatMessage] = field(default_factory=list)
    """The messages whose keys are in `keys`."""
    turns: list[tuple[Turn, TurnReply]] = field(default_factory=list)
    """The policy's turns, as the trajectory records them and as clients receive them."""
    is_busy: bool = True
    """Whether a turn is being generated; until it is finished, the conversation's messages are not known."""


class Session:
    """Answers the requests that a program sends in one episode.

    Args:
        policy: a fresh conversation; `Policy.sibling` creates further conversations with the same model.
        format: the syntax of native calls.
        trajectory: the row's trajectory, which the session fills.
        max_turns: maximum number of turns; None means no limit.
        models: names of the models whose turns are trained on; empty means the name in the first request.
    """

    def __init__(
        self,
        policy: Policy,
        format: ToolCallFormat,
        trajectory: Trajectory,
        *,
        max_turns: int | None = None,
        models: Sequence[str] = (),
    ) -> None:
        self.id = uuid4().hex
        self.trajectory = trajectory
        self.error: Exception | None = None
        """The first failure of the engine or the gateway, after which the episode cannot be scored."""
        self.counts: Counter[str] = Counter()
        self._policy, self._format, self._max_turns, self._models = policy, format, max_turns, tuple(models)
        self._conversations: list[_Conversation] = []
        self._replies: dict[str, asyncio.Task[TurnReply]] = {}
        self._tasks: list[asyncio.Task[TurnReply]] = []
        self._histories: dict[str, tuple[_Conversation, int, int]] = {}
        """For each reply, its conversation, the number of messages up to the reply, and the number of leading messages
        that are not inherited by a request that continues the reply."""
        self._written_ids: set[str] = set()
        """Call ids that the policy itself wrote, as Kimi K2 does; a template may show these ids with the results."""
        self.is_closed = False

    def reply(self, request: TurnRequest, key: str, is_retry: bool) -> asyncio.Task[TurnReply]:
        """Start the turn that answers a request; the turn is finished even if no client waits for it.

        Args:
            request: the request.
            key: a value that is the same for equal requests.
            is_retry: whether the request gets the turn of an earlier request with this key, if there is one; if False,
                each of two equal requests gets its own sample.

        Raises:
            RequestError: the session is closed.
        """
        if self.is_closed:
            raise RequestError("the episode of this API key is over", 401)
        self.counts["requests"] += 1
        if is_retry and key in self._replies:
            self.counts["retries"] += 1
            return self._replies[key]
        for name, value in request.sampling.items():
            run = self._policy.sampling.get(name, SAMPLING[name])
            if value != run:
                _say_once(f"a program sets {name}, but the run's value {run} applies")
        if request.forced:
            _say_once("a program requires a tool call (tool_choice), which is treated as auto")
        task = asyncio.ensure_future(self._turn(self._whole(request)))
        task.add_done_callback(self._note_failure)
        self._replies[key] = task
        self._tasks.append(task)
        return task

    async def count_tokens(self, request: TurnRequest) -> int:
        """Return the number of tokens before the turn that would answer a request.

        Raises:
            RequestError: the request continues an unknown reply.
        """
        request = self._whole(request)
        try:
            if (conversation := self._known(request)) is not None:
                return conversation.policy.count_tokens(request.messages[len(conversation.keys) :])
            return self._policy.count_tokens(request.messages, self._format.template_tools(_specs(request.tools)))
        except RequestError:
            raise
        except Exception as error:  # counting tokens affects no turn, so only the client gets the error
            raise RequestError(f"the tokens of the request cannot be counted ({error})") from error

    def fail(self, error: Exception) -> RequestError:
        """Leave the episode unscored after an error that the client did not cause; return the error for the client."""
        self.error = self.error or error
        return RequestError(str(error), 503)

    async def close(self) -> None:
        """End the episode: wait for open turns, and exclude the turns that no client has received.

        The episode's answer is the last turn that a client has received, unless this turn has calls or was cut.
        """
        self.is_closed = True
        if open_turns := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(open_turns)
        trained = [each for each in self._conversations if each.is_trained and each.turns]
        for conversation in trained:
            turn, reply = conversation.turns[-1]
            if not reply.is_fetched:
                conversation.policy.forget_turn()
                conversation.turns.pop()
                turn.notes["unfetched"] = True
                self.counts["unfetched"] += 1
        self.trajectory.info["gateway"] = {**self.counts, "conversations": sum(bool(each.turns) for each in trained)}
        replies = {id(turn): reply for each in trained for turn, reply in each.turns}
        last = next((replies[id(turn)] for turn in reversed(self.trajectory.turns) if id(turn) in replies), None)
        self.trajectory.answer = None if last is None or last.calls or last.finish == "length" else last.text

    def _note_failure(self, task: asyncio.Task[TurnReply]) -> None:
        """Leave the episode unscored after a failure of the engine, the chat template or the gateway."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not isinstance(error, RequestError):
            self.fail(error)

    async def _turn(self, request: TurnRequest) -> TurnReply:
        if not request.messages:
            raise RequestError("the request has no messages")
        open_turns = sum(each.is_trained and each.is_busy for each in self._conversations)
        if self._max_turns is not None and len(self.trajectory.turns) + open_turns >= self._max_turns:
            self.trajectory.stop_reason = StopReason.MAX_TURNS
            raise RequestError(f"the episode has at most {self._max_turns} turns", 400, "max_turns")
        specs = _specs(request.tools)
        conversation, new = self._continued(request)
        started = time.monotonic()
        try:
            if not await self._fits(conversation, request, new, specs):
                self.counts["too_long"] += 1
                if conversation.is_trained:
                    self.trajectory.stop_reason = StopReason.MAX_TOKENS
                raise RequestError("the conversation is longer than the run allows", 400, "context_length_exceeded")
            prompt_tokens = conversation.policy.context_tokens
            conversation.policy.most = request.max_tokens
            generated = await conversation.policy.generate(request.stop)
            turn, reply = read_turn(generated, self._format, specs, prompt_tokens)
            self._written_ids.update(call.id for call in turn.calls if call.id and call.id in generated.text)
            turn.generation_seconds = time.monotonic() - started
            if request.forced and conversation.is_trained and not reply.calls:
                self.counts["unenforced_tool_choices"] += 1
            self._append(conversation, request, turn, reply)
            return reply
        finally:
            conversation.is_busy = False

    def _whole(self, request: TurnRequest) -> TurnRequest:
        """Return the request with the messages of the reply that it continues."""
        if not request.continues:
            return request
        if request.continues not in self._histories:
            text = f"Previous response with id 'resp_{request.continues}' not found."
            raise RequestError(text, 400, "previous_response_not_found")
        conversation, end, start = self._histories[request.continues]
        own, new = request.messages[: request.instructions], request.messages[request.instructions :]
        return replace(request, messages=[*own, *conversation.messages[start:end], *new])

    def _known(self, request: TurnRequest) -> _Conversation | None:
        """Return the longest conversation that the request continues, or None."""
        keys = [message_key(message, request.stop) for message in request.messages]
        tools_key = _key_of(request.tools)
        known = [
            each
            for each in self._conversations
            if not each.is_busy and each.tools == tools_key and len(each.keys) < len(keys)
            and each.keys == keys[: len(each.keys)]
        ]  # fmt: skip
        return max(known, key=lambda each: len(each.keys), default=None)

    def _continued(self, request: TurnRequest) -> tuple[_Conversation, Sequence[ChatMessage]]:
        """Return the conversation that a request continues, or a new one, and the messages that the request appends."""
        if (conversation := self._known(request)) is not None:
            conversation.is_busy = True
            return conversation, request.messages[len(conversation.keys) :]
        if not self._models:
            self._models = (request.model,)
        is_trained = request.model in self._models
        if not is_trained:
            self.counts["side_requests"] += 1
        is_first = is_trained and not any(each.is_trained for each in self._conversations)
        policy = self._policy if is_first else self._policy.sibling(is_trained=is_trained)
        conversation = _Conversation(policy, _key_of(request.tools), is_trained)
        self._conversations.append(conversation)
        return conversation, request.messages

    async def _fits(
        self,
        conversation: _Conversation,
        request: TurnRequest,
        new: Sequence[ChatMessage],
        specs: Sequence[ToolSpec],
    ) -> bool:
        """Append the new messages; return False if they leave no token for a turn."""
        if conversation.turns:
            turn, reply = conversation.turns[-1]
            fits = await conversation.policy.extend(conversation.policy.as_text(self._answers(request, new)))
            if fits:
                reply.is_fetched = True
                turn.observation = "\n".join(str(message["content"]) for message in new)
                sent = request.messages[len(conversation.keys) - 1].get("tool_calls") or ()
                places = {call["id"]: place for place, call in enumerate(sent)}  # a client may rename the ids
                results = [message for message in new if message["role"] == "tool"]
                results.sort(key=lambda result: places.get(result.get("tool_call_id"), len(places)))
                pairs = zip(turn.calls, results, strict=False)
                turn.results = [ToolResult(call.id, call.name, str(result["content"])) for call, result in pairs]
            return fits
        try:
            messages = conversation.policy.as_text(request.messages)
            await conversation.policy.begin(messages, self._format.template_tools(specs))
        except UnscoredError:
            self._conversations.remove(conversation)
            return False
        if conversation.is_trained and not self.trajectory.turns:
            self.trajectory.prompt = [Message.from_chat(message) for message in request.messages]
        return True

    def _answers(self, request: TurnRequest, new: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the new messages; a result gets its call's name, but keeps its id only if the policy wrote the id."""
        calls = [call for message in request.messages for call in message.get("tool_calls") or ()]
        names = {call["id"]: {"name": call["function"]["name"]} for call in calls}
        answers = []
        for message in new:
            key = message.get("tool_call_id")
            named = {**(names.get(key, {}) if message["role"] == "tool" else {}), **message}
            if key not in self._written_ids:
                named.pop("tool_call_id", None)
            answers.append(named)
        return answers

    def _append(self, conversation: _Conversation, request: TurnRequest, turn: Turn, reply: TurnReply) -> None:
        calls = [function_call(call.id, call.name, call.arguments) for call in reply.calls]
        assistant = {"role": "assistant", "content": reply.text, "tool_calls": calls}
        conversation.messages = [*request.messages, assistant]
        conversation.keys = [message_key(message, request.stop) for message in conversation.messages]
        self._histories[reply.id] = conversation, len(conversation.messages), request.instructions
        conversation.turns.append((turn, reply))
        if conversation.is_trained:
            self.trajectory.turns.append(turn)


def read_turn(
    generated: Generation, format: ToolCallFormat, specs: Sequence[ToolSpec], prompt_tokens: int
) -> tuple[Turn, TurnReply]:
    """Read a turn; calls that cannot be read remain plain text, as with other servers."""
    turn, text = Turn(text=generated.text, tokens=generated.tokens), without_channels(generated.text)
    content, calls = spoken(text), list[ToolCall]()
    try:
        if specs:
            content, calls = format.split(spoken(generated.text), specs)
    except MalformedActionError as error:
        turn.malformed = str(error)
    turn.calls = [ToolCall(call.name, call.arguments, call.id or f"call_{uuid4().hex[:24]}") for call in calls]
    if generated.finish == "length":
        turn.notes["cut"] = True
    finish = "length" if generated.finish == "length" else "tool_calls" if turn.calls else "stop"
    thoughts, stop = thoughts_of(text), generated.stop if finish == "stop" else None
    return turn, TurnReply(content.strip(), thoughts, turn.calls, finish, prompt_tokens, generated.tokens, stop)  # type: ignore[arg-type]


@cache
def _say_once(text: str) -> None:
    """Log a warning once per process, because programs repeat their requests in every episode."""
    logger.warning(text)


def _specs(tools: Sequence[dict[str, Any]]) -> list[ToolSpec]:
    try:
        return declared_functions([tool["function"] for tool in tools])
    except ConfigError as error:
        raise RequestError(str(error)) from error


def _key_of(tools: Sequence[dict[str, Any]]) -> str:
    return json.dumps(tools, sort_keys=True, default=str)
