"""Folding: when the context is nearly full, the policy writes notes, and a new conversation continues from them.

If the answer to a turn would leave fewer than `reserve_tokens` tokens of the context, the episode requests notes first.
The next conversation has the same prompt, with the notes and the answer at its end:

    user: <task>                            user: <task>
    assistant: <turn>                             Your notes so far: <notes>
    user: <answer> ...                            The answer to your last action: <answer>
    user: <a request for notes>             assistant: <turn>
    assistant: <notes>                      ...

Each conversation is a separate training sequence, in which sampled tokens, notes included, have mask 1. All sequences
get the trajectory's reward. With every built-in `algo=`, the trainer counts a trajectory once, because its sequences
form one sample of the group and share one advantage.

If the notes do not fit in the context, the episode ends, as it does after any turn that does not fit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from agent_rl.agents import registry
from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.format import joined_content, spoken
from agent_rl.agents.episode.policy import ChatMessage, Generation, Policy
from agent_rl.agents.syntaxes.json_calls import without_channels
from agent_rl.agents.users.user import User
from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.settings import AgentRLSettings

DEFAULT_INSTRUCTIONS = (
    "Your context is nearly full. You will go on in a new one that has only the task, what you write now, and the "
    "answer to your last action, which you have not seen yet. Do not act now. Write notes of all that you need in "
    "order to go on: what you did, what you found, what you were about to do and why."
)


class FoldingPolicy(Policy):
    """Wraps the `inner` policy, and replaces a long history with notes.

    Args:
        inner: the policy; calling its `begin` again starts a new conversation.
        reserve_tokens: number of context tokens that are reserved for the notes and the request for notes.
        max_folds: maximum number of folds; after the last fold, a full context ends the episode.
        instructions: the request for notes; None means the default.
    """

    def __init__(self, inner: Policy, *, reserve_tokens: int, max_folds: int, instructions: str | None = None) -> None:
        self._inner, self._kept, self._left = inner, reserve_tokens, max_folds
        self._instructions = DEFAULT_INSTRUCTIONS if instructions is None else instructions
        self._prompt: list[ChatMessage] = []
        self._tools: list[dict[str, Any]] = []
        self._notes: dict[str, Any] = {}

    @property
    def prompt_tokens(self) -> int:  # type: ignore[override]
        """Number of prompt tokens in the first conversation."""
        return self._inner.prompt_tokens

    @property
    def response_tokens(self) -> int:  # type: ignore[override]
        """Number of response tokens in all conversations."""
        return self._inner.response_tokens

    @property
    def longest_tokens(self) -> int:
        """Number of response tokens in the longest conversation."""
        return self._inner.longest_tokens

    async def begin(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> None:
        """Start the first conversation."""
        self._prompt, self._tools = list(messages), list(tools)
        await self._inner.begin(messages, tools)

    async def generate(self, stop: Sequence[str] = (), *, keep_stop: bool = False) -> Generation:
        """Generate the next turn, which may use the tokens that are reserved for notes."""
        self._inner.reserve = self.reserve
        return await self._inner.generate(stop, keep_stop=keep_stop)

    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        """Append the messages, or fold the history and continue with the messages."""
        self._inner.reserve = max(self.reserve, self._kept if self._left else 0)
        if await self._inner.extend(messages):
            return True
        if not self._left:
            return False
        self._inner.reserve = self.reserve
        if await self._fold(messages):
            self._left -= 1
            return True
        self._left = 0
        return False

    def take_notes(self) -> dict[str, Any]:
        """Return `{"fold": {"notes": ..., "tokens": ..., "seconds": ...}}` if the last `extend` folded, else `{}`."""
        notes, self._notes = self._notes, {}
        return notes

    async def _fold(self, messages: Sequence[ChatMessage]) -> bool:
        started = time.monotonic()
        if not await self._inner.extend(_with_content(messages, self._instructions)):
            return False
        notes = await self._inner.generate()
        seconds = time.monotonic() - started
        self._notes["fold"] = {"notes": notes.text, "tokens": notes.tokens, "seconds": seconds}
        if notes.finish == "length":
            return False
        try:
            await self._inner.begin(self._folded(spoken(without_channels(notes.text)), messages), self._tools)
        except UnscoredError:  # the policy wrote notes so long that no turn fits after them
            return False
        return True

    def _folded(self, notes: str, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the prompt with the notes and the content of `messages` at its end."""
        *before, last = self._prompt
        shown = [part for message in messages for part in _parts(message)]
        answer = "\n".join(part["text"] for part in shown if part["type"] == "text")
        text = f"Your notes so far:\n{notes}\n\nThe answer to your last action:\n{answer}"
        images = [part for part in shown if part["type"] != "text"]
        added = [*images, {"type": "text", "text": text}] if images else text
        return [*before, {**last, "content": joined_content(last["content"], added)}]


def _folded(settings: AgentRLSettings) -> Agent:
    """Return the agent that `agent_rl.folding.loop` names."""
    names = [name for name in registry.agent_names() if name not in ("folding_agent", "gateway_agent")]
    agent = registry.find_agent(settings.folding.loop, key="agent_rl.folding.loop", known=names)
    assert isinstance(agent, Agent)  # all agents in this package are `Agent` records
    return agent


def _user(settings: AgentRLSettings, extra_info: Mapping[str, Any]) -> User | None:
    make_user = _folded(settings).user
    return make_user(settings, extra_info) if make_user else None


def _wrap_policy(settings: AgentRLSettings, limits: EpisodeLimits, policy: Policy) -> FoldingPolicy:
    folding = settings.folding
    if folding.reserve_tokens >= limits.response_length:
        problem = f"{folding.reserve_tokens} is not less than data.max_response_length={limits.response_length}"
        raise ConfigError("agent_rl.folding.reserve_tokens", problem, "Lower it")
    return FoldingPolicy(
        policy,
        reserve_tokens=folding.reserve_tokens,
        max_folds=folding.max_folds,
        instructions=folding.instructions,
    )


AGENT = Agent(
    "folding_agent",
    lambda settings, limits: _folded(settings).format(settings, limits),
    user=_user,
    wrap_policy=_wrap_policy,
)


def _with_content(messages: Sequence[ChatMessage], text: str) -> list[ChatMessage]:
    """Put `text` in the last message, and "(later)" in the others, which stay because each call needs a result."""
    return [*({**message, "content": "(later)"} for message in messages[:-1]), {**messages[-1], "content": text}]


def _parts(message: ChatMessage) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
