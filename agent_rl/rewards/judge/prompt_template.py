r"""`BasePromptTemplate`: the prompt of a judge model and the form of its verdict, as one pydantic class.

    class Helpfulness(BasePromptTemplate):
        score: int = Field(description="helpfulness from 0 (none) to 4 (all that was needed)", ge=0, le=4)

    prompt = Helpfulness.format(desc="Judge how helpful the answer is.", query="6 * 7?", answer="42")
    Helpfulness.parse("<think>It is right.</think>\n<score>4</score>").score  # 4

The fields make up the verdict: `schema` explains them to the model, `parse` reads a verdict
(`agent_rl.rewards.judge.reply` describes how) and `render` writes one, so that `parse(render(x)) == x`. Subclasses may
override `format`, whose parameters may be any placeholders of `RewardModule.format`.
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

T = TypeVar("T", bound="BasePromptTemplate")
_MOST = 400
"""Maximum number of characters that a `VerdictError` quotes from another error."""


class BasePromptTemplate(BaseModel):
    """Base class of prompt templates; a subclass's fields make up the verdict, and string values are stripped."""

    model_config = ConfigDict(str_strip_whitespace=True, allow_inf_nan=False, extra="ignore", frozen=True)

    desc: ClassVar[str] = "Judge how well the answer serves the query. Judge what is there, not how it is presented."
    """The task that `ask` passes to `format`, unless the caller passes another task."""
    examples: ClassVar[Sequence[str]] = ()
    """The worked examples that `ask` passes to `format`, unless the caller passes other examples."""
    note: ClassVar[str] = "End with these tags, and write nothing after them:"

    think: str = Field(default="", description="your reasoning, step by step")
    """The model's thoughts, which its chat template or this prompt requests."""

    @classmethod
    def schema(cls, enable_thinking: bool = True, **kwargs: Any) -> str:  # type: ignore[override]
        """Describe the form of the verdict in words.

        Args:
            enable_thinking: whether to ask the model for its thoughts; False if its chat template already does that.
            kwargs: placeholders of `format`, for subclasses that need them.
        """
        fields = {name: field for name, field in cls.model_fields.items() if name != reply.THINK or enable_thinking}
        lines = (f"<{name}>\n{field.description or name}\n</{name}>" for name, field in fields.items())
        return "\n".join([cls.note, *lines])

    @classmethod
    def format(
        cls, desc: str = "", examples: str | Sequence[str] = "", query: str = "", answer: str = "", **kwargs: Any
    ) -> str:
        """Return the prompt.

        Args:
            desc: the task.
            examples: worked examples; may be empty.
            query: the question that was answered.
            answer: the answer to judge.
            kwargs: `context`, the arguments of `schema`, and the arguments of the built-in templates: `response_a`,
                `response_b` and `criteria` (descriptions by name).
        """
        example_text = examples if isinstance(examples, str) else "\n\n".join(examples)
        return sections(
            ("Task", desc), *cls._criteria(**kwargs), ("Examples", example_text),
            ("Context", str(kwargs.get("context") or "")), ("Query", query), *cls._answers(answer, **kwargs),
            ("Output", cls.schema(**kwargs)),
        )  # fmt: skip

    @classmethod
    def _criteria(cls, **kwargs: Any) -> list[tuple[str, str]]:
        return []

    @classmethod
    def _answers(cls, answer: str, **kwargs: Any) -> list[tuple[str, str]]:
        """Return the sections of the prompt that contain the answers, as (heading, text) pairs."""
        return [("Answer", answer)]

    @classmethod
    def ask(cls, query: str, answers: Sequence[str], **more: Any) -> str:
        """Return the prompt for some answers, by calling `format` with the arguments that it accepts.

        Chat-template control tokens in the answers are broken up, so that no answer can end the prompt's message.

        Args:
            query: the question that was answered.
            answers: one answer, the answers A and B, or more.
            more: `desc` and `examples` (default: the class's values), `context`, `criteria`, `enable_thinking`, and
                your own placeholders.
        """
        texts = [harmless(answer) for answer in answers]
        own = {"query": harmless(query), "answer": texts[0], "answers": texts, "response_a": texts[0]}
        values: dict[str, Any] = {
            **dict.fromkeys(("context", "principles", "rubrics", "scenario"), ""), **own, "response_b": texts[-1],
            "desc": cls.desc, "examples": "\n\n".join(cls.examples), **more,
        }  # fmt: skip
        values["context"] = harmless(values["context"])
        values["criteria"] = {name: harmless(text) for name, text in (more.get("criteria") or {}).items()}
        parameters = inspect.signature(cls.format).parameters
        takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        return cls.format(**{name: value for name, value in values.items() if takes_any or name in parameters})

    @classmethod
    def read(cls: type[T], text: str, judged: str = "") -> T:
        """Extract the verdict from a reply with `parse`; a subclass's own `parse` receives only the text.

        Raises:
            VerdictError: the reply has no usable verdict.
        """
        takes_judged = cls.parse.__func__ is BasePromptTemplate.parse.__func__  # type: ignore[attr-defined]
        try:
            return cls.parse(text, judged) if takes_judged else cls.parse(text)
        except VerdictError:
            raise
        except ValueError as error:  # a user's `parse` raised it, for example pydantic's ValidationError
            raise VerdictError(str(error)[:_MOST]) from None

    @classmethod
    def parse(cls: type[T], text: str, judged: str = "") -> T:
        """Extract the verdict from a reply.

        Args:
            text: the whole reply.
            judged: the judged text; a verdict that is also in this text may be a quotation.

        Raises:
            VerdictError: the reply contains no verdict, two different verdicts, or a verdict in another form.
        """
        return cls._verdict(cls._parse(text, judged))

    @classmethod
    def _parse(cls, text: str, judged: str = "") -> dict[str, str]:
        """Return the text of each field in a reply; a subclass may use this in its own `parse`.

        Raises:
            VerdictError: the reply contains none of the fields, or two different values for a field.
        """
        thoughts, body = reply.split_thoughts(text)
        fields = reply.read_fields(body, cls._verdict_tags(), judged)
        return {reply.THINK: thoughts, **fields} if thoughts else fields

    @classmethod
    def _verdict(cls: type[T], contents: Mapping[str, str]) -> T:
        return checked_verdict(cls, {tag: cls._value(tag, text) for tag, text in contents.items()})

    @classmethod
    def render(cls, values: BasePromptTemplate | Mapping[str, Any]) -> str:
        """Return a verdict as a model should write it, without empty thoughts.

        Raises:
            ValidationError: the values are not a verdict of this form.
        """
        verdict = values if isinstance(values, cls) else cls.model_validate(values)
        parts = []
        for name in sorted(cls.model_fields, key=lambda field: field != reply.THINK):
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
        """Whether a reply, apart from its thoughts, consists only of the tags of a verdict."""
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
        """Convert a tag's text to a value; the text is parsed as JSON unless the field is a string.

        A JSON boolean is returned as text, because pydantic would accept a boolean as a number.
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
    """Return a prompt that consists of the non-empty sections, each under its heading."""
    return "\n\n".join(f"# {heading}\n{text.strip()}" for heading, text in parts if text.strip())
