"""Derives the tokens that a chat template puts around turns.

A conversation grows by sampled tokens and by the continuation after each turn: the token that ends the turn (if it was
not sampled), the environment's messages, and the start of the next turn. To derive the continuation, a short made-up
conversation is rendered, in which the environment's messages follow a turn with a marker; the text after the marker is
the continuation. The conversation itself is never rendered again.

A template may reject what an agent needs, such as a system message or two user messages in a row. `fitted` rewrites the
messages into a form that the template accepts.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.format import joined_content, spoken
from agent_rl.agents.policies.call_messages import CALL_ID, MARK, call_turns, marked_turns
from agent_rl.agents.policies.shown_tools import SYNTAX, as_user_message, with_tools
from agent_rl.agents.syntaxes import SYNTAXES, Syntax
from agent_rl.agents.syntaxes.json_calls import CHANNEL, without_channels
from agent_rl.agents.tool_call import AUTO, FORMAT_KEY
from agent_rl.errors import ConfigError, MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

Messages = Sequence[Mapping[str, Any]]

NO_SYNTAX = "it writes no calls, or writes them in an unknown syntax"
"""A clause for error messages that says why native tool calls do not work with a template."""
MOST = 256
"""Maximum number of entries in the cache, which is emptied when it is full."""

USER = {"role": "user", "content": "Hello."}
"""A question that every template accepts."""
RESULT = {"role": "tool", "name": "f", "tool_call_id": CALL_ID, "content": "5"}


class Following(NamedTuple):
    """How the chat template continues after a turn."""

    closing: list[int]
    """Tokens from the end of the turn up to the next message; if empty, the next message ends the turn."""
    rest: list[int]
    """Tokens of the messages and of the start of the next turn."""


class ChatTemplate:
    """A tokenizer's chat template with its options.

    Args:
        tokenizer: a transformers tokenizer that has a chat template.
        options: additional variables for the template (`data.apply_chat_template_kwargs`).
        name: the template's name in tables.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None, name: str = "") -> None:
        self.tokenizer, self.options, self.name = tokenizer, dict(options or {}), name
        self._known: dict[Any, Any] = {}

    @property
    def label(self) -> str:
        """The template's name and fingerprint."""
        return f"{self.name} ({hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest()[:8]})"

    def text(self, messages: Messages, tools: Any = None, *, prompt: bool) -> str:
        """Render the conversation, with or without the start of the next turn; the template may raise any error."""
        if tools and not self.names_tools:
            messages, tools = with_tools(messages, tools, system=self.takes_system, form=self.asks_for_calls), None
        return self._rendered(messages, tools or self._no_tools, prompt=prompt)

    def _rendered(self, messages: Messages, tools: Any, *, prompt: bool) -> str:
        text = self.tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt, **self.options
        )
        return str(text)

    def encode(self, text: str) -> list[int]:
        """Return the text's tokens, without added special tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        """Return the text of the tokens, with or without special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=not special))

    @cached_property
    def syntax(self) -> str | None:
        """The key in `SYNTAXES` for the syntax in which the template writes calls or `with_tools` requests them.

        None means that the template shows tools, but does not write calls in a known syntax.
        """
        return self._own_syntax or (SYNTAX if self.asks_for_calls else None)

    @cached_property
    def asks_for_calls(self) -> bool:
        """Whether the template shows no tools and writes no calls, so that `text` requests `shown_tools.SYNTAX`."""
        return not self.names_tools and self._own_syntax is None

    @cached_property
    def _own_syntax(self) -> str | None:
        arguments = {"place": MARK, "days": 3}
        properties = {"place": {"type": "string"}, "days": {"type": "integer"}}
        spec = ToolSpec("forecast", "The weather.", {"type": "object", "properties": properties}, object)
        calls = [ToolCall("forecast", arguments)]
        for turn in call_turns([ToolCall("forecast", arguments, CALL_ID)]):
            with contextlib.suppress(Exception):  # a chat template may raise any exception
                written = self._rendered([USER, turn], [spec.schema()], prompt=False)
                for prompt in (True, False):
                    before = self._rendered([USER], [spec.schema()], prompt=prompt)
                    text = written[same_beginning(written, before) :]
                    for name, syntax in SYNTAXES.items():
                        if _read(syntax, text, [spec]) == calls:
                            return name
        return None

    def rendered(self, messages: Messages, tools: Any = None, *, prompt: bool) -> str:
        """Parse the calls in the turns, as a server does, and then render the conversation."""
        if not self.asks_for_calls:
            with contextlib.suppress(Exception):
                return self.text(self.fitted(self._with_calls(messages)), tools, prompt=prompt)
        return self._fitted_text(messages, tools, prompt=prompt)

    def prompt_ids(self, messages: Messages, tools: Any = None) -> list[int]:
        """Return the tokens of a whole conversation, followed by the start of the next turn.

        Raises:
            Exception: any error from the template, if it rejects even the fitted messages.
        """
        key = ("prompt", repr(tools), repr(messages))
        ids: list[int] = self._once(key, lambda: self.encode(self._fitted_text(messages, tools, prompt=True)))
        return list(ids)

    def following(self, appended: Messages, tools: Any = None) -> Following:
        """Return the continuation after a turn that these messages answer.

        Raises:
            Exception: any error from the template for these messages.
        """
        key = ("following", repr(tools), repr(appended))
        result: Following = self._once(key, lambda: self._find_following(appended, tools))
        return result

    def fitted(self, messages: Messages) -> list[dict[str, Any]]:
        """Return the messages in a form that the template accepts.

        A rejected system message is moved to the start of the first user message, rejected user messages in a row are
        joined, and results become user messages if the template rejects tool messages and does not show tools.
        """
        fitted = [dict(message) for message in messages]
        if not self._takes_results and not self.names_tools:
            fitted = [as_user_message(message) if message["role"] == "tool" else message for message in fitted]
        if not self.takes_system and fitted and fitted[0]["role"] == "system":
            fitted[0]["role"] = "user"
        if self.takes_repeated_users:
            return fitted
        joined: list[dict[str, Any]] = []
        for message in fitted:
            if joined and message["role"] == joined[-1]["role"] == "user":
                joined[-1] = {**joined[-1], "content": joined_content(joined[-1]["content"], message["content"])}
            else:
                joined.append(message)
        return joined

    @cached_property
    def added_tokens(self) -> list[str]:
        """The vocabulary's added tokens, longest first."""
        return sorted(self.tokenizer.get_added_vocab(), key=len, reverse=True)

    @cached_property
    def names_tools(self) -> bool:
        """Whether the template shows tools; if not, `text` describes the tools in a message."""
        template = self.tokenizer.chat_template
        return not isinstance(template, str) or re.search(r"\btools\b", template) is not None

    @cached_property
    def takes_system(self) -> bool:
        """Whether the template renders a system message."""
        text = self._try([{"role": "system", "content": MARK}, USER])
        return text is not None and MARK in text

    @cached_property
    def takes_repeated_users(self) -> bool:
        """Whether the template renders two user messages in a row."""
        return self._try([USER, USER]) is not None

    @cached_property
    def _takes_results(self) -> bool:
        """Whether the template renders a tool's result."""
        with contextlib.suppress(Exception):  # a chat template may raise any exception
            return bool(self._following_as_given([RESULT], None))
        return False

    @cached_property
    def end_id(self) -> int | None:
        """The special token that ends an answer; if None, the next message ends the answer."""
        followings = self._followings[:1]
        return next((token for each in followings for token in self._specials(each.closing)[-1:]), None)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The special tokens that end a turn; if empty, the next message ends the turn."""
        closings = [each.closing for each in self._followings]
        alone = self._try([USER, {"role": "assistant", "content": MARK}])
        if alone is not None and MARK in alone:
            closings.append(self.encode(alone.rpartition(MARK)[2]))
        return frozenset(last for closing in closings for last in self._specials(closing)[-1:])

    @cached_property
    def start_ids(self) -> frozenset[int]:
        """The special tokens at the start of the environment's messages."""
        starts = [each.rest[0] for each in self._followings if each.rest]
        return self.special_ids.intersection(starts)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The tokenizer's special tokens, including tokens without a specific role."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        marked = {number for number, token in added.items() if token.special}
        return frozenset(marked | set(self.tokenizer.all_special_ids))

    @cached_property
    def _followings(self) -> list[Following]:
        """The continuations after a turn that a user or a tool answers, except any that cannot be rendered."""
        followings = []
        for message in (USER, RESULT):
            with contextlib.suppress(Exception):  # a chat template may raise any exception
                followings.append(self.following([message]))
        return followings

    def _fitted_text(self, messages: Messages, tools: Any, *, prompt: bool) -> str:
        try:
            return self.text(messages, tools, prompt=prompt)
        except Exception:
            fitted = self.fitted(messages)
            for tried in (fitted, self._with_calls(fitted)):
                with contextlib.suppress(Exception):
                    return self.text(tried, tools, prompt=prompt)
            raise

    def _with_calls(self, messages: Messages) -> list[dict[str, Any]]:
        """Return the messages, with calls moved from the text of turns to `tool_calls`."""
        converted, syntax = [dict(message) for message in messages], SYNTAXES[self.syntax or "hermes"]
        for number, message in enumerate(converted):
            content = message.get("content")
            if message["role"] != "assistant" or message.get("tool_calls") or not isinstance(content, str):
                continue
            try:
                visible, calls = syntax.read(content, ())
            except MalformedActionError:
                continue
            if calls:
                for call, after in zip(calls, converted[number + 1 :], strict=False):
                    call.id = call.id or after.get("tool_call_id", "")
                message.update(next(call_turns(calls)), content=visible)
            elif CHANNEL in content:
                message["content"] = spoken(without_channels(content))
        return converted

    def _find_following(self, appended: Messages, tools: Any) -> Following:
        try:
            return self._following_as_given(appended, tools)
        except Exception:
            if (fitted := self.fitted(appended)) == list(appended):
                raise
            return self._following_as_given(fitted, tools)

    def _following_as_given(self, appended: Messages, tools: Any) -> Following:
        problem = None
        for turn, messages in marked_turns(appended):
            try:
                alone = self._alone(turn, tools)
                answered = self.text([USER, turn, *messages], tools, prompt=True).rpartition(MARK)
            except Exception as error:  # noqa: BLE001 - the template may accept another form of the turn
                problem = problem or error
                continue
            if alone[1] and answered[1]:
                following = self._divided(alone[2], answered[2])
                called = turn.get("tool_calls") and not self._specials(following.closing)
                return Following([], following.rest) if called else following
        roles = [message["role"] for message in appended]
        raise problem or ValueError(f"the chat template does not show a turn that precedes messages with roles {roles}")

    def _alone(self, turn: Mapping[str, Any], tools: Any) -> tuple[str, str, str]:
        """Render a made-up turn that has no answer yet, and split the text at the marker."""
        key = ("alone", repr(tools), repr(turn))
        parts: tuple[str, str, str] = self._once(
            key, lambda: self.text([USER, turn], tools, prompt=False).rpartition(MARK)
        )
        return parts

    def _divided(self, alone: str, answered: str) -> Following:
        """Return the tokens of the text after the marker, divided at the end of the turn."""
        if answered.startswith(alone):
            return Following(self.encode(alone), self.encode(answered[len(alone) :]))
        ids = self.encode(answered)
        end = next((at + 1 for at, token in enumerate(ids) if token in self.special_ids), 0)
        return Following(ids[:end], ids[end:])

    def _specials(self, ids: list[int]) -> list[int]:
        return [token for token in ids if token in self.special_ids]

    @cached_property
    def _no_tools(self) -> list[Any] | None:
        """The value that means "no tools" to the template; a template that fails with None may need an empty list."""
        values: tuple[list[Any] | None, ...] = (None, [])
        for tools in values:
            with contextlib.suppress(Exception):  # a chat template may raise any exception
                self._rendered([USER], tools, prompt=False)
                return tools
        return None

    def _try(self, messages: Messages) -> str | None:
        try:
            return self.text(messages, prompt=False)
        except Exception:  # noqa: BLE001 - a chat template may raise any exception
            return None

    def _once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the cached value for a key, after calling `make` to create a missing one."""
        if key not in self._known:
            value = make()
            if len(self._known) >= MOST:
                self._known.clear()
            self._known[key] = value
        return self._known[key]


_templates: dict[tuple[int, str, str], ChatTemplate] = {}


def template_of(tokenizer: Any, options: Mapping[str, Any] | None = None) -> ChatTemplate:
    """Return a tokenizer's template; all conversations in a process share the template and its cache."""
    key = (id(tokenizer), str(tokenizer.chat_template), repr(options or {}))
    return _templates.get(key) or _templates.setdefault(key, ChatTemplate(tokenizer, options))


def with_syntax(limits: EpisodeLimits, tokenizer: Any, options: Mapping[str, Any] | None = None) -> EpisodeLimits:
    """Return the limits, with `multi_turn.format=auto` replaced by the syntax that the chat template writes.

    Raises:
        ConfigError: the template does not write calls in a known syntax.
    """
    if limits.format != AUTO:
        return limits
    if (syntax := template_of(tokenizer, options).syntax) is None:
        syntaxes = ", ".join(SYNTAXES)
        raise ConfigError(
            FORMAT_KEY,
            f"the chat template cannot be used: {NO_SYNTAX}",
            f"Choose the syntax that the model writes, one of {syntaxes}, or use react_agent",
        )
    return limits._replace(format=syntax)


def _read(syntax: Syntax, text: str, tools: Sequence[ToolSpec]) -> list[ToolCall]:
    try:
        return [ToolCall(call.name, call.arguments) for call in syntax.read(text, tools)[1]]
    except MalformedActionError:
        return []


def same_beginning(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how many leading items of two sequences are equal."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def load_tokenizer(name: str, key: str) -> Any:
    """Load the tokenizer of a model.

    Args:
        name: the model's folder, or its name on the Hub.
        key: the configuration key to name in error messages.

    Raises:
        ConfigError: the tokenizer does not exist or has no chat template.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        problem = f"there is no tokenizer in {name!r} ({str(error).splitlines()[0]})"
        raise ConfigError(key, problem, "Use the model's folder or its name on the Hub") from None
    if not tokenizer.chat_template:
        raise ConfigError(key, f"{name} has no chat template", "Use the tokenizer of the -Instruct model")
    return tokenizer
