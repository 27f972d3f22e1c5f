r"""`BasePromptTemplate`: a question to a model that judges, and the form of its verdict, as one pydantic class.

    class Helpfulness(BasePromptTemplate):
        score: int = Field(description="helpfulness from 0 (none) to 4 (all that was needed)", ge=0, le=4)

    prompt = Helpfulness.format(desc="Judge how helpful the answer is.", query="6 * 7?", answer="42")
    Helpfulness.parse("<think>It is right.</think>\n<score>4</score>").score  # 4

The fields are the verdict: `schema` explains them to the model, `parse` reads one (`agent_rl.rewards.judge.reply` says
how), `render` writes one, so that `parse(render(x)) == x`. `format` is meant to be overridden; every placeholder of
`RewardModule.format` may be a parameter of it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from agent_rl.rewards.judge import reply
from agent_rl.rewards.judge.fence import harmless
from agent_rl.rewards.judge.verdict import VerdictError, checked_verdict

__all__ = ["BasePromptTemplate", "sections"]

T = TypeVar("T", bound="BasePromptTemplate")
_MOST = 400
"""Characters of a problem in an error."""


class BasePromptTemplate(BaseModel):
    """A question and the form of its verdict; text fields are without white space around them."""

    model_config = ConfigDict(str_strip_whitespace=True, allow_inf_nan=False, extra="ignore", frozen=True)

    desc: ClassVar[str] = "Judge how well the answer serves the query. Judge what is there, not how it is presented."
    """The task, unless `format` is given another."""
    examples: ClassVar[Sequence[str]] = ()
    """Worked examples, unless `format` is given others."""
    note: ClassVar[str] = "End with these tags, and write nothing after them:"

    think: str = Field(default="", description="your reasoning, step by step")
    """The model's thoughts, whether its chat template or this one asks for them."""

    @classmethod
    def schema(cls, enable_thinking: bool = True, **kwargs: Any) -> str:  # type: ignore[override]
        """The form of the verdict in words.

        Args:
            enable_thinking: whether the model is asked to write its thoughts; False where its chat template does that.
            kwargs: placeholders of `format`, for templates of one's own.
        """
        fields = {name: each for name, each in cls.model_fields.items() if name != reply.THINK or enable_thinking}
        lines = (f"<{name}>\n{field.description or name}\n</{name}>" for name, field in fields.items())
        return "\n".join([cls.note, *lines])

    @classmethod
    def format(
        cls, desc: str = "", examples: str | Sequence[str] = "", query: str = "", answer: str = "", **kwargs: Any
    ) -> str:
        """The prompt.

        Args:
            desc: the task.
            examples: worked examples, empty for none.
            query: the question that was answered.
            answer: the answer to judge.
            kwargs: `context`, what `schema` takes, and what the built-in templates show: `response_a`,
                `response_b`, and `criteria`, descriptions by name.
        """
        shown = examples if isinstance(examples, str) else "\n\n".join(examples)
        return sections(
            ("Task", desc), *cls._criteria(**kwargs), ("Examples", shown),
            ("Context", str(kwargs.get("context") or "")), ("Query", query), *cls._answers(answer, **kwargs),
            ("Output", cls.schema(**kwargs)),
        )  # fmt: skip

    @classmethod
    def _criteria(cls, **kwargs: Any) -> list[tuple[str, str]]:
        return []

    @classmethod
    def _answers(cls, answer: str, **kwargs: Any) -> list[tuple[str, str]]:
        """Sections of the prompt, each a heading and its text."""
        return [("Answer", answer)]

    @classmethod
    def ask(cls, query: str, answers: Sequence[str], **more: Any) -> str:
        """The prompt about answers: `format` with the placeholders that it takes.

        Texts are shown without control tokens of chat templates, so that an answer cannot end its message.

        Args:
            query: that was answered.
            answers: one, A and B, or more.
            more: `desc`, `examples`, `context`, `criteria`, `enable_thinking`, and placeholders of your own; without
                `desc` and `examples` the class's own.
        """
        shown = [harmless(answer) for answer in answers]
        own = {"query": harmless(query), "answer": shown[0], "answers": shown, "response_a": shown[0]}
        given: dict[str, Any] = {
            **dict.fromkeys(("context", "principles", "rubrics", "scenario"), ""), **own, "response_b": shown[-1],
            "desc": cls.desc, "examples": "\n\n".join(cls.examples), **more,
        }  # fmt: skip
        given["context"] = harmless(given["context"])
        given["criteria"] = {name: harmless(text) for name, text in (more.get("criteria") or {}).items()}
        parameters = inspect.signature(cls.format).parameters
        is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
        return cls.format(**{name: value for name, value in given.items() if is_open or name in parameters})

    @classmethod
    def read(cls: type[T], text: str, judged: str = "") -> T:
        """The verdict in a reply by `parse`, which may be a user's own, of the text alone.

        Raises:
            VerdictError: the reply has no verdict.
        """
        takes_judged = cls.parse.__func__ is BasePromptTemplate.parse.__func__  # type: ignore[attr-defined]
        try:
            return cls.parse(text, judged) if takes_judged else cls.parse(text)
        except VerdictError:
            raise
        except ValueError as error:  # of a user's `parse`, pydantic's ValidationError among them
            raise VerdictError(str(error)[:_MOST]) from None

    @classmethod
    def parse(cls: type[T], text: str, judged: str = "") -> T:
        """The verdict in a reply.

        Args:
            text: the whole reply.
            judged: what was judged; a verdict that is also there may be a quotation.

        Raises:
            VerdictError: there is none, there are two, or it breaks the form.
        """
        return cls._verdict(cls._parse(text, judged))

    @classmethod
    def _parse(cls, text: str, judged: str = "") -> dict[str, str]:
        """The text of each field in a reply, for a `parse` of one's own.

        Raises:
            VerdictError: there is no field, or one with two values.
        """
        thoughts, body = reply.split_thoughts(text)
        fields = reply.read_fields(body, cls._verdict_tags(), judged)
        return {reply.THINK: thoughts, **fields} if thoughts else fields

    @classmethod
    def _verdict(cls: type[T], contents: Mapping[str, str]) -> T:
        return checked_verdict(cls, {tag: cls._value(tag, text) for tag, text in contents.items()})

    @classmethod
    def render(cls, values: BasePromptTemplate | Mapping[str, Any]) -> str:
        """A verdict as a model should write it; empty thoughts are left out.

        Raises:
            ValidationError: the values are no verdict of this form.
        """
        verdict = values if isinstance(values, cls) else cls.model_validate(values)
        parts = []
        for name in sorted(cls.model_fields, key=lambda each: each != reply.THINK):
            value = getattr(verdict, name)
            if value is None or (name == reply.THINK and not value):
                continue
            if _is_text(cls.model_fields[name]):
                parts.append(f"<{name}>\n{reply.escaped(value)}\n</{name}>")
            else:
                data = verdict.model_dump(mode="json", include={name})[name]
                text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
                parts.append(f"<{name}>{reply.escaped(text)}</{name}>")
        return "\n".join(parts)

    @classmethod
    def is_strict(cls, text: str) -> bool:
        """Whether a reply is exactly the tags of a verdict, after its thoughts."""
        try:
            fields = reply.is_strict(reply.split_thoughts(text)[1], cls._verdict_tags())
            return fields is not None and bool(cls._verdict(fields))
        except VerdictError:
            return False

    @classmethod
    def _verdict_tags(cls) -> list[str]:
        return [name for name in cls.model_fields if name != reply.THINK]

    @classmethod
    def _value(cls, tag: str, text: str) -> Any:
        """The data that a tag's text stands for: numbers and lists are JSON.

        A boolean stays a text, because pydantic would take it for a number.
        """
        text = reply.unescaped(text)
        if tag not in cls.model_fields or _is_text(cls.model_fields[tag]):
            return text
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return text.strip()
        return text.strip() if isinstance(data, bool) else data


def _is_text(field: FieldInfo) -> bool:
    return field.annotation is str or set(get_args(field.annotation)) == {str, type(None)}


def sections(*parts: tuple[str, str]) -> str:
    """A prompt of headed sections, without the empty ones."""
    return "\n\n".join(f"# {heading}\n{text.strip()}" for heading, text in parts if text.strip())
