"""`Policy`: generates the assistant messages of one conversation.

In training the messages come from verl's token server (`token_policy.TokenPolicy`), and in tests from a script. Each
episode has its own policy object.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agent_rl.errors import EngineError
from agent_rl.trajectory import ToolCall

__all__ = ["Generation", "Policy", "ScriptedPolicy", "cut_at_stop", "first_stop"]

ChatMessage = dict[str, Any]
"""A chat message in the form that chat templates accept, with at least `role` and `content`."""


@dataclass(slots=True)
class Generation:
    """One assistant message."""

    text: str
    """The text up to the stop string, which is included only with `keep_stop`; special tokens are removed, unless the
    format reads special tokens."""
    tokens: int
    """Number of sampled tokens."""
    finish: Literal["stop", "length"] = "stop"
    """`length` means that the token budget ended the message."""
    calls: list[ToolCall] | None = None
    """Tool calls that the endpoint has parsed; None means that the text contains the calls."""
    stop: str | None = None
    """The stop string that ended the message, or None if no stop string is known."""


class Policy(ABC):
    """One conversation with a model."""

    prompt_tokens: int = 0
    response_tokens: int = 0
    """Total number of response tokens in all conversations."""
    earlier_tokens: Sequence[int] = ()
    """The number of response tokens in each earlier conversation."""
    most: int | None = None
    """Maximum number of tokens to sample in the next turn; None means that only the token limit applies."""
    sampling: Mapping[str, Any] = {}
    """The sampling parameters for every request."""
    reserve: int = 0
    """Number of tokens at the end of the budget that neither `generate` nor `extend` may use."""

    @property
    def longest_tokens(self) -> int:
        """Number of response tokens in the longest conversation; the token limit applies to every conversation."""
        return max([*self.earlier_tokens, self.response_tokens - sum(self.earlier_tokens)])

    @abstractmethod
    async def begin(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> None:
        """Start the conversation, or replace it with a new one.

        The earlier conversation stays a separate training sequence.

        Args:
            messages: the prompt.
            tools: OpenAI function schemas for the chat template; empty when the prompt's text describes the tools.

        Raises:
            UnscoredError: the prompt is too long.
        """

    @abstractmethod
    async def generate(self, stop: Sequence[str] = (), *, keep_stop: bool = False) -> Generation:
        """Generate the next assistant message, which ends before the first stop string.

        Args:
            stop: the stop strings.
            keep_stop: whether the message includes the stop string at its end, for example a closing tag.

        Raises:
            EngineError: the engine failed.
        """

    @abstractmethod
    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        """Append the environment's messages, or return False if they would leave no token for an answer."""

    def sibling(self, *, is_trained: bool = True) -> Policy:
        """Return a fresh conversation with the same model.

        Args:
            is_trained: whether to train on the new conversation's sequences, which are added after this conversation's.
        """
        raise NotImplementedError(f"{type(self).__name__} supports only one conversation")

    def count_tokens(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]] | None = None) -> int:
        """Estimate, from the number of characters, how many tokens precede the turn that answers these messages.

        Args:
            messages: the prompt of a new conversation, or further messages of this conversation.
            tools: the tools of a new conversation; None means that this conversation continues.
        """
        begun = self.context_tokens if tools is None else 0
        return begun + len(json.dumps([*messages, *(tools or ())], ensure_ascii=False, default=str)) // 3

    def forget_turn(self) -> None:  # noqa: B027 - optional: only conversations that are trained on override it
        """Exclude the last turn from training."""

    def as_text(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """Return the messages in a form in which the model's special tokens are encoded as plain text."""
        return list(messages)

    @property
    def context_tokens(self) -> int:
        """Number of tokens before the next turn."""
        return self.prompt_tokens + self.response_tokens

    def take_notes(self) -> dict[str, Any]:
        """Return the policy's notes on the last call to `extend`, to be stored in `Turn.notes`."""
        return {}


class ScriptedPolicy(Policy):
    """Returns assistant messages from a list in order, and treats every word as a token."""

    def __init__(self, texts: Iterable[str], max_tokens: int | None = None) -> None:
        self.messages: list[ChatMessage] = []
        self._texts = list(texts)
        self._next = 0
        self._max_tokens = max_tokens
        self.earlier_tokens: list[int] = []

    async def begin(self, messages: Sequence[ChatMessage], tools: Sequence[dict[str, Any]]) -> None:
        """Store the prompt; a second call starts a new budget and continues the script."""
        self.messages = list(messages)
        self.prompt_tokens = self.prompt_tokens or sum(len(message["content"].split()) for message in messages)
        self.earlier_tokens.append(self.response_tokens - sum(self.earlier_tokens))

    async def generate(self, stop: Sequence[str] = (), *, keep_stop: bool = False) -> Generation:
        """Return the next text of the script.

        Raises:
            EngineError: the script has no more messages.
        """
        if self._next == len(self._texts):
            raise EngineError(f"the script has {len(self._texts)} messages, but one more was requested")
        words = self._texts[self._next].split(" ")
        self._next += 1
        left = len(words) if self._max_tokens is None else self._left(self._max_tokens)
        text = " ".join(words[:left])
        self.response_tokens += min(len(words), left)
        text_shown = cut_at_stop(text, stop, keep_stop)
        self.messages.append({"role": "assistant", "content": text_shown})
        finish: Literal["stop", "length"] = "length" if left < len(words) else "stop"
        return Generation(text_shown, min(len(words), left), finish, stop=first_stop(text, stop))

    async def extend(self, messages: Sequence[ChatMessage]) -> bool:
        """Append the messages, or return False if they would use up the budget."""
        tokens = sum(len(str(message["content"]).split()) for message in messages)
        if self._max_tokens is not None and tokens >= self._left(self._max_tokens):
            return False
        self.response_tokens += tokens
        self.messages.extend(messages)
        return True

    def _left(self, max_tokens: int) -> int:
        return max_tokens - self.reserve - (self.response_tokens - sum(self.earlier_tokens))


def cut_at_stop(text: str, stop: Sequence[str], keep_stop: bool = False) -> str:
    """Cut the text before its first stop string; with `keep_stop`, cut the text after that stop string."""
    if (first := first_stop(text, stop)) is None:
        return text
    return text[: text.find(first) + len(first) * keep_stop]


def first_stop(text: str, stop: Sequence[str]) -> str | None:
    """Return the stop string that comes first in the text, or None if the text contains no stop string."""
    return min((each for each in stop if each in text), key=text.find, default=None)
