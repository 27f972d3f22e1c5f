"""The text around turns, as a model's chat template writes it, whatever the template.

A conversation grows by what was sampled and by what follows a turn: the token that ends it if it was not sampled, the
messages of the environment, and the start of the next turn. What follows is found by rendering a short made-up
conversation, in which a turn with a mark stands before the same messages: it is the text after the mark. Nothing of
the conversation itself is rendered again.

A template may refuse what an agent needs (a system message, two messages of one role in a row). `fitted` says the same
in messages that it takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.format import CLOSE, OPEN, OTHER_THOUGHTS, spoken
from agent_rl.agents.syntaxes import SYNTAXES, Syntax
from agent_rl.agents.syntaxes.json_calls import CHANNEL, without_channels
from agent_rl.agents.tool_call import AUTO, FORMAT_KEY
from agent_rl.errors import ConfigError, MalformedActionError
from agent_rl.tools import ToolSpec
from agent_rl.trajectory import ToolCall

__all__ = [
    "IN_ORDER",
    "IN_THOUGHTS",
    "IN_WHITE_SPACE",
    "MOST",
    "ChatTemplate",
    "Following",
    "template_of",
    "with_syntax",
]

Messages = Sequence[Mapping[str, Any]]

MOST = 256
"""Entries of the cache; a full one is emptied."""

MARK = "Xq7Mark"
THOUGHTS = (
    (OPEN, CLOSE),
    *OTHER_THOUGHTS,
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
)
"""What stands around a thought, by family."""

IN_WHITE_SPACE = "in white space only"
IN_THOUGHTS = "in its thoughts and their marks only"
IN_ORDER = "in the place of the system message or the tools only"

_USER = {"role": "user", "content": "Hello."}
_CALL_ID = "call00000"
"""As long as Mistral's templates demand, which take no other."""


class Following(NamedTuple):
    """What the template writes after a turn."""

    closing: list[int]
    """Tokens that end the turn, and what is written before the next message; empty: the next message ends it."""
    rest: list[int]
    """Tokens of the messages and of the next turn's start."""


class ChatTemplate:
    """A tokenizer's chat template with its options.

    Args:
        tokenizer: of transformers, with its template set.
        options: further variables of the template (`data.apply_chat_template_kwargs`).
        name: for tables.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any] | None = None, name: str = "") -> None:
        self.tokenizer, self.options, self.name = tokenizer, dict(options or {}), name
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        self._variables = {**tokenizer.special_tokens_map, **self.options}
        taken = inspect.signature(tokenizer.apply_chat_template).parameters
        self._plain = isinstance(tokenizer.chat_template, str) and not self._variables.keys() & taken
        self._known: dict[Any, tuple[Any, Any]] = {}

    @property
    def label(self) -> str:
        """Name and fingerprint."""
        return f"{self.name} ({hashlib.sha256(str(self.tokenizer.chat_template).encode()).hexdigest()[:8]})"

    def text(self, messages: Messages, tools: Any = None, *, prompt: bool) -> str:
        """The conversation as text, with or without the start of the next turn; raises what the template raises."""
        tools = tools or self._no_tools
        if not self._plain:
            text = self.tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=prompt, **self.options
            )
            return str(text)
        from transformers.utils.chat_template_utils import render_jinja_template  # the wrappers around it take longer

        (text,), _ = render_jinja_template(
            [list(messages)],
            tools=tools,
            chat_template=self.tokenizer.chat_template,
            add_generation_prompt=prompt,
            **self._variables,
        )
        return str(text)

    def encode(self, text: str) -> list[int]:
        """The text's tokens, without added special tokens."""
        backend, tokenizer = self._backend, self.tokenizer
        if (
            backend is not None
            and backend.truncation is None
            and backend.padding is None
            and backend.encode_special_tokens == tokenizer.split_special_tokens
        ):
            ids: list[int] = backend.encode(text, add_special_tokens=False).ids
            return ids
        return list(tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        """The text of tokens, with or without its special tokens."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=not special))

    @cached_property
    def syntax(self) -> str | None:
        """The name of the syntax in which it writes calls of tools (`SYNTAXES`); None: it writes none that is known."""
        arguments = {"place": MARK, "days": 3}
        properties = {"place": {"type": "string"}, "days": {"type": "integer"}}
        spec = ToolSpec("forecast", "The weather.", {"type": "object", "properties": properties}, object)
        wanted = [ToolCall("forecast", arguments)]
        for turn in _turns([ToolCall("forecast", arguments, _CALL_ID)]):
            with contextlib.suppress(Exception):  # a template may raise anything
                written = self.text([_USER, turn], [spec.schema()], prompt=False)
                for prompt in (True, False):
                    before = self.text([_USER], [spec.schema()], prompt=prompt)
                    text = written[_same(written, before) :]
                    for name, syntax in SYNTAXES.items():
                        if _read(syntax, text, [spec]) == wanted:
                            return name
        return None

    def call_text(self, calls: Sequence[ToolCall], tools: Any = None) -> str:
        """A turn with these calls as the template writes it, without what ends the turn.

        Raises:
            ValueError: it writes none.
        """
        stops = self.end_ids | self.start_ids
        opening = self.encode(self.text([_USER], tools, prompt=True))
        for turn in _turns(calls):
            with contextlib.suppress(Exception):  # a template may raise anything
                ids = self.encode(self.text([_USER, turn], tools, prompt=False))
                same = _same(ids, opening)
                last = next((at for at in range(len(ids) - 1, same, -1) if ids[at] in stops), len(ids))
                text = self.decode(ids[same:last])
                if calls[-1].name in text:
                    return text.rstrip("\n")
        raise ValueError("the chat template writes no calls")

    def thought(self, text: str, tools: Any = None) -> str:
        """The turn after a thought, if the template has opened one at the start of the turn."""
        opening = self.text([_USER], tools, prompt=True)
        for begin, end in THOUGHTS:
            if begin in opening and end not in opening.rpartition(begin)[2]:
                return f"I compute.\n{end}\n\n{text.rpartition(end)[2].lstrip()}"
        return text

    def answer_text(self, text: str) -> str:
        """A turn that says this as the template writes it, without what ends the turn."""
        opening = self.encode(self.text([_USER], prompt=True))
        full = self.text([_USER, {"role": "assistant", "content": MARK}], prompt=False)
        before = self.encode(full.rpartition(MARK)[0])
        same = _same(before, opening)
        return self.decode(before[same:]) + text if same == len(opening) else text

    def stop_after(self, answer: Mapping[str, Any], tools: Any = None) -> list[int]:
        """The token with which a turn stops that this message answers; none: there is no such token."""
        closing, rest = self.following([answer], tools)
        ends = [token for token in closing if token in self.end_ids]
        return ends[-1:] or [token for token in rest[:1] if token in self.start_ids]

    def rendered(self, messages: Messages, tools: Any = None, *, prompt: bool) -> str:
        """The conversation as a server renders it, which reads the calls in its turns first."""
        with contextlib.suppress(Exception):
            return self.text(self.fitted(self._with_calls(messages)), tools, prompt=prompt)
        return self._fitted_text(messages, tools, prompt=prompt)

    def prompt_ids(self, messages: Messages, tools: Any = None) -> list[int]:
        """The tokens of a whole conversation with the start of the next turn.

        Raises:
            Exception: whatever the template raises for messages that it does not take even when they are fitted.
        """
        key = ("prompt", id(tools), repr(messages))
        ids: list[int] = self._once(key, tools, lambda: self.encode(self._fitted_text(messages, tools, prompt=True)))
        return list(ids)

    def following(self, appended: Messages, tools: Any = None) -> Following:
        """What follows a turn when these messages answer it.

        Raises:
            Exception: whatever the template raises for them.
        """
        key = ("following", id(tools), repr(appended))
        found: Following = self._once(key, tools, lambda: self._find_following(appended, tools))
        return found

    def fitted(self, messages: Messages) -> list[dict[str, Any]]:
        """The messages as the template takes them.

        A system message that it refuses begins the first message of the user; messages of one role in a row that it
        refuses become one.
        """
        fitted = [dict(message) for message in messages]
        if not self.takes_system and fitted and fitted[0]["role"] == "system":
            fitted[0]["role"] = "user"
        if self.takes_repeated_users:
            return fitted
        joined: list[dict[str, Any]] = []
        for message in fitted:
            if joined and message["role"] == joined[-1]["role"] == "user":
                joined[-1] = {**joined[-1], "content": _joined(joined[-1]["content"], message["content"])}
            else:
                joined.append(message)
        return joined

    def difference(self, written: str, later: str) -> str:
        """In which way a later rendering differs from what was written, if it is no more than one of these; else empty.

        Args:
            written: the beginning of a conversation.
            later: the whole, or the beginning, rendered anew.
        """
        if "".join(later.split()).startswith("".join(written.split())):
            return IN_WHITE_SPACE
        words, others = self._words(written), self._words(later)
        if "".join(others).startswith("".join(words)):
            return IN_THOUGHTS
        return IN_ORDER if set(words) <= set(others) else ""

    def _words(self, text: str) -> list[str]:
        """The text without thoughts, special tokens and the marks around them."""
        for begin, end in THOUGHTS:
            text = re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", " ", text, flags=re.DOTALL)
            text = re.sub(rf"[^\n>]*\n?{re.escape(end)}", " ", text).replace(begin, " ")  # opened by the prompt
        for header in (f"{CHANNEL}final", "<|channel>thought"):
            text = text.replace(header, " ")
        for token in self._added:
            text = text.replace(token, " ")
        return text.split()

    @cached_property
    def _added(self) -> list[str]:
        return sorted(self.tokenizer.get_added_vocab(), key=len, reverse=True)

    @cached_property
    def takes_system(self) -> bool:
        """Whether it renders a system message."""
        text = self._try([{"role": "system", "content": MARK}, _USER])
        return text is not None and MARK in text

    @cached_property
    def takes_repeated_users(self) -> bool:
        """Whether it renders two messages of the user in a row."""
        return self._try([_USER, _USER]) is not None

    @cached_property
    def end_id(self) -> int | None:
        """The special token with which it ends an answer; None: the next message ends it."""
        followings = self._followings[:1]
        return next((token for each in followings for token in self._specials(each.closing)[-1:]), None)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """The special tokens with which it ends a turn; none: the next message ends it."""
        closings = [each.closing for each in self._followings]
        alone = self._try([_USER, {"role": "assistant", "content": MARK}])
        if alone is not None and MARK in alone:
            closings.append(self.encode(alone.rpartition(MARK)[2]))
        return frozenset(last for closing in closings for last in self._specials(closing)[-1:])

    @cached_property
    def start_ids(self) -> frozenset[int]:
        """The special tokens with which messages of the environment begin."""
        starts = [each.rest[0] for each in self._followings if each.rest]
        return self.special_ids.intersection(starts)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The tokenizer's special tokens, also those without a role of their own."""
        added = getattr(self.tokenizer, "added_tokens_decoder", {})
        marked = {number for number, token in added.items() if token.special}
        return frozenset(marked | set(self.tokenizer.all_special_ids))

    @cached_property
    def _followings(self) -> list[Following]:
        """What follows a turn that a user answers, and one that a tool answers, where it takes them."""
        found = []
        for message in (_USER, {"role": "tool", "name": "f", "tool_call_id": _CALL_ID, "content": "5"}):
            with contextlib.suppress(Exception):  # a template may raise anything
                found.append(self.following([message]))
        return found

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
        """The messages with calls as the template's own variable, where they are the text of a turn."""
        found, syntax = [dict(message) for message in messages], SYNTAXES[self.syntax or "hermes"]
        for number, message in enumerate(found):
            content = message.get("content")
            if message["role"] != "assistant" or message.get("tool_calls") or not isinstance(content, str):
                continue
            try:
                said, calls = syntax.read(content, ())
            except MalformedActionError:
                continue
            if calls:
                for call, after in zip(calls, found[number + 1 :], strict=False):
                    call.id = call.id or after.get("tool_call_id", "")
                message.update(next(_turns(calls)), content=said)
            elif CHANNEL in content:
                message["content"] = spoken(without_channels(content))
        return found

    def _find_following(self, appended: Messages, tools: Any) -> Following:
        problem: Exception | None = None
        for turn, messages in _made_up(appended):
            try:
                alone = self.text([_USER, turn], tools, prompt=False).rpartition(MARK)
                answered = self.text([_USER, turn, *messages], tools, prompt=True).rpartition(MARK)
            except Exception as error:  # noqa: BLE001 - the template's: it may take another form of the turn
                problem = problem or error
                continue
            if alone[1] and answered[1]:
                found = self._divided(alone[2], answered[2])
                called = turn.get("tool_calls") and not self._specials(found.closing)
                return Following([], found.rest) if called else found
        roles = [message["role"] for message in appended]
        raise problem or ValueError(f"the chat template does not show the turn before messages of roles {roles}")

    def _divided(self, alone: str, answered: str) -> Following:
        """The text after the mark, divided where the turn has ended."""
        if answered.startswith(alone):
            return Following(self.encode(alone), self.encode(answered[len(alone) :]))
        ids = self.encode(answered)
        end = next((at + 1 for at, token in enumerate(ids) if token in self.special_ids), 0)
        return Following(ids[:end], ids[end:])

    def _specials(self, ids: list[int]) -> list[int]:
        return [token for token in ids if token in self.special_ids]

    @cached_property
    def _no_tools(self) -> list[Any] | None:
        """What it takes for no tools: a template for tools alone may want an empty list."""
        self.__dict__["_no_tools"] = None
        if self._try([_USER]) is not None:
            return None
        self.__dict__["_no_tools"] = []
        return None if self._try([_USER]) is None else []

    def _try(self, messages: Messages) -> str | None:
        try:
            return self.text(messages, prompt=False)
        except Exception:  # noqa: BLE001 - a template may raise anything
            return None

    def _once(self, key: Any, tools: Any, make: Callable[[], Any]) -> Any:
        """The cached value of a key, else that of `make`; tools are kept, so that no other object gets their id."""
        if (known := self._known.get(key)) is not None:
            return known[0]
        value = make()
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[key] = (value, tools)
        return value


_templates: dict[tuple[int, str, str], ChatTemplate] = {}


def template_of(tokenizer: Any, options: Mapping[str, Any] | None = None) -> ChatTemplate:
    """The template of a tokenizer; the same object, with its cache, for all conversations of a process."""
    key = (id(tokenizer), str(tokenizer.chat_template), repr(options or {}))
    return _templates.get(key) or _templates.setdefault(key, ChatTemplate(tokenizer, options))


def with_syntax(limits: EpisodeLimits, tokenizer: Any, options: Mapping[str, Any] | None = None) -> EpisodeLimits:
    """The limits with the syntax of calls that the chat template writes, where `multi_turn.format=auto`.

    Raises:
        ConfigError: it writes none that is known.
    """
    if limits.format != AUTO:
        return limits
    if (syntax := template_of(tokenizer, options).syntax) is None:
        known = ", ".join(SYNTAXES)
        problem = "the chat template writes calls in a syntax that nothing here reads, or none at all"
        raise ConfigError(
            FORMAT_KEY, problem, f"Name the syntax that the model writes, one of {known}, or use react_agent"
        )
    return limits._replace(format=syntax)


def _made_up(appended: Messages) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Turns with the mark as late in them as possible, and the messages that answer them.

    Templates differ in the form of a call that they take: arguments as an object or as JSON, content as text or null.
    """
    messages = [dict(message) for message in appended]
    results = [message for message in messages if message["role"] == "tool"]
    said = {"role": "assistant", "content": MARK}
    if not results:
        yield said, messages
        return
    named = [{"name": "f", "tool_call_id": f"{_CALL_ID[:-1]}{n % 10}", **given} for n, given in enumerate(results)]
    replaced = iter(named)
    whole = [next(replaced) if message["role"] == "tool" else message for message in messages]
    for shown in [messages] if whole == messages else [messages, whole]:
        for content, marked, as_text in (
            ("", True, False),
            ("", True, True),
            (None, True, False),
            (None, True, True),
            (MARK, False, False),
            (MARK, False, True),
        ):
            calls = []
            for number, message in enumerate(named, start=1):
                arguments = {"value": MARK} if marked and number == len(named) else {"value": "x"}
                function = {"name": message["name"], "arguments": json.dumps(arguments) if as_text else arguments}
                calls.append({"id": message["tool_call_id"], "type": "function", "function": function})
            yield {"role": "assistant", "content": content, "tool_calls": calls}, shown
    yield said, messages


def _turns(calls: Sequence[ToolCall]) -> Iterator[dict[str, Any]]:
    """A turn with these calls, in the forms that templates take."""
    for content, as_text in (("", False), ("", True), (None, False), (None, True)):
        written = [
            {
                "id": call.id or f"{_CALL_ID[:-1]}{number % 10}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments) if as_text else call.arguments},
            }
            for number, call in enumerate(calls)
        ]
        yield {"role": "assistant", "content": content, "tool_calls": written}


def _read(syntax: Syntax, text: str, tools: Sequence[ToolSpec]) -> list[ToolCall]:
    try:
        return [ToolCall(call.name, call.arguments) for call in syntax.read(text, tools)[1]]
    except MalformedActionError:
        return []


def _same(first: Sequence[Any], second: Sequence[Any]) -> int:
    """How many first items are the same."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(first), len(second)))


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts = [[{"type": "text", "text": each}] if isinstance(each, str) else list(each) for each in (first, second)]
    return parts[0] + parts[1]
