"""`PromptTemplate`: writes a judge's prompt and reads its verdict, using a template file or a class.

A file contains one or two messages: the system message follows a `[system]` line, the user message a `[user]` line.
`{name}` is a placeholder, and `{{name}}` is the literal text `{name}`. An instruction against prompt injection and the
form of the verdict are added to the file's text. A class (`agent_rl.rewards.judge.kinds`) writes the whole prompt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from agent_rl.errors import ConfigError, UnscoredError, did_you_mean, reason_of
from agent_rl.rewards.judge.fence import Fence, harmless
from agent_rl.rewards.judge.kinds import chat_thinks, find_template, names_a_class
from agent_rl.rewards.judge.prompt_template import BasePromptTemplate
from agent_rl.rewards.judge.verdict import VerdictForm, code_rule
from agent_rl.trajectory import Message, Trajectory

FOLDER = Path(__file__).parent / "templates"
NO_ANSWER = "(no final answer was given)"
_PLACEHOLDER = re.compile(r"\{(\{\w+\})\}|\{(\w+)\}")
_HEADING = re.compile(r"^\[(system|user)\]\s*$", re.MULTILINE)
_LARGEST_PART = 4
"""No part of a transcript takes up more than 1 / `_LARGEST_PART` of the limit."""


@dataclass(frozen=True, slots=True)
class Question:
    """The material to judge and the form of the verdict."""

    form: VerdictForm
    trajectories: tuple[Trajectory, ...]
    """One trajectory, or the trajectories A and B."""
    max_chars: int
    criteria: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the criteria, by name."""


@dataclass(frozen=True)
class FileTemplate:
    """A prompt template from a file with placeholders; the judge's reply is JSON."""

    system: str
    user: str
    names: frozenset[str]
    """The placeholders in the file."""
    in_json: ClassVar[bool] = True
    """Whether the reply must be JSON that follows the schema of the verdict's form."""

    def values(self, question: Question, fence: Fence) -> dict[str, str]:
        """Return the placeholders' values by name.

        Raises:
            UnscoredError: the trajectory lacks one of the values.
        """
        return {name: self._value(name, question, fence) for name in self.names}

    def render(self, question: Question, fence: Fence) -> list[dict[str, str]]:
        """Return the messages of the request."""
        system, user = self.fill(self.values(question, fence))
        system = "\n\n".join(part for part in (system, fence.guard, code_rule(fence.nonce)) if part)
        user = f"{user}\n\n{question.form.instructions}"
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def parse(self, reply: str, question: Question, fence: Fence) -> Any:
        """Extract the verdict from a reply.

        Raises:
            VerdictError: the reply has no usable verdict.
        """
        return question.form.read(reply, "\n".join(self.values(question, Fence("")).values()), fence.nonce)

    def fill(self, values: Mapping[str, str]) -> tuple[str, str]:
        """Return the system and user text with the values filled in; braces in the values have no effect."""
        system, user = (
            _PLACEHOLDER.sub(lambda match: match[1] or values[match[2]], text) for text in (self.system, self.user)
        )
        return system, user

    def _value(self, name: str, question: Question, fence: Fence) -> str:
        if name == "rubric":
            return "\n".join(f"- {criterion}: {harmless(text)}" for criterion, text in question.criteria.items())
        return shown(name, question.trajectories[-1 if name.endswith("_b") else 0], fence, question.max_chars)


@dataclass(frozen=True)
class ClassTemplate:
    """A prompt template from the class that was used to train the judge; the judge's reply contains tags."""

    template: type[BasePromptTemplate]
    chat_thinks: bool
    """Whether the chat template asks the model to think."""
    in_json: ClassVar[bool] = False

    def values(self, question: Question, fence: Fence) -> dict[str, str]:
        """Return the answers to judge, keyed by their index (from 0)."""
        return {str(at): cut(_answer(item), question.max_chars) for at, item in enumerate(question.trajectories)}

    def render(self, question: Question, fence: Fence) -> list[dict[str, str]]:
        """Return the single message of the request."""
        query, context = question_and_context(question.trajectories[0].prompt)
        prompt = self.template.ask(
            cut(query, question.max_chars),
            list(self.values(question, fence).values()),
            context=cut(context, question.max_chars),
            criteria=dict(question.criteria),
            enable_thinking=not self.chat_thinks,
        )
        return [{"role": "user", "content": prompt}]

    def parse(self, reply: str, question: Question, fence: Fence) -> Any:
        """Extract the verdict from a reply.

        Raises:
            VerdictError: the reply has no usable verdict.
        """
        return question.form.of(self.template.read(reply, "\n".join(self.values(question, fence).values())))


PromptTemplate = FileTemplate | ClassTemplate
"""Writes the request to a judge (`render`), and reads the verdict in its reply (`parse`)."""


_SINGLE = ("question", "answer", "transcript", "reference", "rubric")
_PAIR = ("question", "reference", "answer_a", "answer_b", "transcript_a", "transcript_b")
_MODES: dict[str, tuple[str, tuple[str, ...], list[tuple[str, ...]]]] = {
    "pointwise": ("score", _SINGLE, [("answer", "transcript")]),
    "reference": ("score", _SINGLE, [("answer", "transcript"), ("reference",)]),
    "rubric": ("scores", _SINGLE, [("answer", "transcript"), ("rubric",)]),
    "pairwise": ("preference", _PAIR, [("answer_a", "transcript_a"), ("answer_b", "transcript_b")]),
}
"""For each mode: the field that a class's verdict must have, the placeholders that a file may contain, and groups of
placeholders. A file must contain at least one placeholder from every group."""


def load_template(name: str | None, mode: str, key: str, body: Mapping[str, Any]) -> PromptTemplate:
    """Load the prompt template that a configuration selects.

    Args:
        name: the user's file or class; None means the built-in file for the mode.
        mode: a mode of `JudgeConfig`, or `pairwise`.
        key: the configuration key of the name, used in errors.
        body: fields of the requests, which may make the chat template ask for thoughts.

    Raises:
        ConfigError: the file cannot be read, has an unknown placeholder or lacks a required placeholder; or the class
            cannot be found, or its verdict lacks the required field.
    """
    verdict_field, known, needed = _MODES[mode]
    if names_a_class(name):
        return ClassTemplate(find_template(name, key, verdict_field), chat_thinks(body))
    file, text = read_file(name, mode, key)
    names = frozenset(match[2] for match in _PLACEHOLDER.finditer(text) if match[2])
    for unknown in sorted(names.difference(known)):
        remedy = f"{did_you_mean(unknown, known)} For literal text in braces, double the braces"
        raise ConfigError(key, f"{file} has an unknown placeholder, {{{unknown}}}", remedy)
    for group in needed:
        if names.isdisjoint(group):
            listing = " or ".join(f"{{{name}}}" for name in group)
            raise ConfigError(key, f"{file} has no {listing}", "Add the placeholder to the template")
    before, *headed = _HEADING.split(text)
    parts = dict(zip(headed[::2], headed[1::2], strict=True))
    user = "\n\n".join(part.strip() for part in (before, parts.get("user", "")) if part.strip())
    return FileTemplate(parts.get("system", "").strip(), user, names)


def read_file(path: str | None, default: str, key: str) -> tuple[Path, str]:
    """Return the path and the text of a template file.

    Raises:
        ConfigError: the file cannot be read.
    """
    file = FOLDER / f"{default}.md" if path is None else Path(path).expanduser()
    try:
        return file, file.read_text("utf-8-sig")
    except (OSError, UnicodeError) as error:
        problem = f"the template {file} cannot be read ({reason_of(error)})"
        raise ConfigError(key, problem, "Use a text file, or remove the key to use the built-in template") from error


def question_and_context(prompt: Sequence[Message]) -> tuple[str, str]:
    """Return the last message of a prompt, and the earlier messages joined; system messages are ignored."""
    messages = [message for message in prompt if message.role != "system"]
    context = "\n\n".join(f"{message.role}: {message.content}" for message in messages[:-1])
    return messages[-1].content if messages else "", context


def shown(name: str, trajectory: Trajectory, fence: Fence, limit: int) -> str:
    """Return the fenced text that replaces a placeholder.

    Args:
        name: `question`, `reference`, `answer` or `transcript`; the suffix `_a` or `_b` selects one of a pair.
        trajectory: the judged trajectory.
        fence: the request's fence.
        limit: maximum number of characters; the middle of a longer text is cut.

    Raises:
        UnscoredError: the reference is missing.
    """
    kind, _, side = name.upper().partition("_")
    if kind == "QUESTION":
        return _question(trajectory, fence, limit)
    if kind == "REFERENCE":
        return fence.around("reference", cut(_reference(trajectory), limit))
    if kind == "ANSWER":
        return fence.around(f"answer {side}".rstrip(), cut(_answer(trajectory), limit))
    return _within(_parts(trajectory, f" of {side}" if side else ""), fence, limit)


def cut(text: str, limit: int) -> str:
    """Return the text, without its middle if it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[... {len(text) - limit} characters left out ...]\n{tail}"


def _question(trajectory: Trajectory, fence: Fence, limit: int) -> str:
    """Return the fenced prompt without system messages: one message as the question, several as a conversation."""
    messages = [message for message in trajectory.prompt if message.role != "system"]
    if len(messages) == 1:
        return fence.around("question", cut(messages[0].content, limit))
    return _within([(message.role, message.content) for message in messages], fence, limit)


def _answer(trajectory: Trajectory) -> str:
    return NO_ANSWER if trajectory.answer is None else trajectory.answer


def _reference(trajectory: Trajectory) -> str:
    truth = trajectory.ground_truth
    if truth is None:
        raise UnscoredError(f"row {trajectory.info.get('index')!r} has no ground truth, which the judge needs")
    return truth if isinstance(truth, str) else _json(truth)


def _parts(trajectory: Trajectory, suffix: str) -> list[tuple[str, str]]:
    """Return the name and text of each turn, of its calls and results, and of the final answer."""
    parts: list[tuple[str, str]] = []
    for number, turn in enumerate(trajectory.turns, 1):
        place = f"turn {number}{suffix}"
        parts.append((place, turn.text))
        calls = [call for call in turn.calls if call.name not in turn.text]  # text formats put calls in `turn.text`
        parts += [(f"call in {place}", f"{call.name} {_json(call.arguments)}") for call in calls]
        results = [f"{result.name} ({result.status.value}): {result.text}" for result in turn.results]
        if not results and turn.observation is not None:
            results = [turn.observation]
        parts += [(f"result in {place}", text) for text in results]
    return [*parts, (f"final answer{suffix}", _answer(trajectory))]


def _within(parts: Sequence[tuple[str, str]], fence: Fence, limit: int) -> str:
    """Return a fenced block for each part; if the total exceeds the limit, parts in the middle are left out."""
    parts = [(name, cut(text, max(1, limit // _LARGEST_PART))) for name, text in parts]
    first, last, left = 0, len(parts), limit
    while first < last:
        at = first if first <= len(parts) - last else last - 1
        left -= len(parts[at][1])
        if left < 0:
            break
        first, last = (first + 1, last) if at == first else (first, last - 1)
    middle = [f"({last - first} parts left out)"] if last > first else []
    before, after = ([fence.around(*part) for part in kept] for kept in (parts[:first], parts[last:]))
    return "\n".join([*before, *middle, *after])


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
