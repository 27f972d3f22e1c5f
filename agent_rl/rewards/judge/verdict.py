"""Forms of judges' verdicts, and how a verdict is found as JSON in a reply.

A reply is JSON if the server can enforce it. Otherwise the last JSON object that is a verdict counts: after the
reasoning, in a code block or between other words. An object that is also in the judged text may be a quotation, and
then it is not a verdict, whatever else the reply says; a judge that writes more than the object can put the request's
code into it, which no quotation has. Nothing is guessed or clamped: a score out of range, a word instead of a number
or a missing criterion is a `VerdictError`. The library json-repair is not used, because it completes broken JSON.
A class reads tags instead (`agent_rl.rewards.judge.reply`), and `VerdictForm.of` checks what it has read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from typing_extensions import TypedDict

from agent_rl.tools.truncation import encodable

__all__ = [
    "FENCED",
    "MAX_REASON",
    "POINTS",
    "SCANNED",
    "SWAPPED",
    "JudgeVerdict",
    "VerdictError",
    "VerdictForm",
    "Winner",
    "checked_verdict",
    "code_rule",
    "json_object",
    "pair_form",
    "rubric_form",
    "score_form",
    "winner",
]

Verdict = TypeVar("Verdict", bound=BaseModel)
Winner = Literal["A", "B", "tie"]
POINTS: dict[str, float] = {"A": 1.0, "tie": 0.5, "B": 0.0}
"""Points of A, by the winner of a pair."""
SWAPPED: dict[str, Winner] = {"A": "B", "B": "A", "tie": "tie"}
"""The winner of the same pair in the other order."""

MAX_REASON = 600
"""Characters of a reason that are kept."""
SCANNED = 16_384
"""Characters at the end of a reply in which a verdict is looked for, unless the whole reply is one."""
_MOST_OBJECTS = 1_000
"""Most braces at which an object is looked for."""
_DEEP = 500
"""Least nesting depth that is too deep for the parser."""
_SPACE = re.compile(r"[\s|\\]+")  # a fence puts a bar before each line, and JSON in JSON has backslashes
_CODE = "code"
FENCED = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class VerdictError(ValueError):
    """A reply without a usable verdict."""


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # a number for pydantic
        raise ValueError("true and false are not numbers")
    return value


def winner(value: Any) -> Any:
    """`Response a` is A; case does not matter."""
    text = value.strip().lower().removeprefix("response ").removeprefix("answer ") if isinstance(value, str) else value
    return {"a": "A", "b": "B"}.get(text, text) if isinstance(text, str) else text


def _reason(value: Any) -> Any:
    """Shorten a text, and replace lone surrogates, which JSON can hold but a file cannot."""
    return encodable(value)[:MAX_REASON] if isinstance(value, str) else ""


class JudgeVerdict(BaseModel):
    """Base of all verdicts; each form adds a field."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    reason: Annotated[str, BeforeValidator(_reason)] = ""


class VerdictForm:
    """One form of verdict: its model, its JSON schema, and the instruction to the judge.

    Args:
        name: the field next to `reason`.
        kind: its type.
        schema: its JSON schema.
        example: its JSON, as the judge is shown it.
    """

    def __init__(self, name: str, kind: Any, schema: Mapping[str, Any], example: str) -> None:
        fields: dict[str, Any] = {name: (kind, ...)}
        self.model: type[Any] = create_model("JudgeVerdict", __base__=JudgeVerdict, **fields)
        self.instructions = (
            "Reply with one JSON object and nothing else:\n"
            f'{{"reason": "<one to three sentences>", "{name}": {example}}}'
        )
        self.name, self._schema = name, schema

    def schema(self, max_reason: int = MAX_REASON) -> dict[str, Any]:
        """The JSON schema, as strict as servers want it, with a reason of at most so many characters."""
        return _object_schema({"reason": {"type": "string", "maxLength": max_reason}, self.name: self._schema})

    def read(self, reply: str, judged: str = "", code: str = "") -> Any:
        """The verdict in a reply, an instance of `model`.

        Args:
            reply: the whole reply of the judge.
            judged: the judged text, fenced or not.
            code: the code from `code_rule`, which the judged text cannot contain.

        Raises:
            VerdictError: there is none, or none that is not a quotation, or it breaks the form.
        """
        said = _THOUGHT.sub("", reply).rpartition("</think>")[2].strip()
        whole = json_object(reply) or json_object(FENCED.sub(r"\1", said))
        found = [whole] if whole is not None else list(_objects(said[-SCANNED:]))
        candidates = [(value, text) for value, text in found if self.name in value]
        if not candidates:
            raise VerdictError(f"there is no verdict in the reply ({len(reply)} characters)")
        own = [value for value, _ in candidates if whole is not None or (code and value.get(_CODE) == code)]
        own = own or self._own(candidates, judged)
        if not own:
            raise VerdictError("the only verdict in the reply is also in the judged text: it may be a quotation")
        return checked_verdict(self.model, own[-1])

    def of(self, verdict: Any) -> Any:
        """What a prompt template read, as an instance of `model`: its reason is the template's thoughts.

        Raises:
            VerdictError: it breaks the form.
        """
        names = {"reason": "think", self.name: "preference" if self.name == "winner" else self.name}
        return checked_verdict(self.model, {name: getattr(verdict, field) for name, field in names.items()})

    def _own(self, candidates: Sequence[tuple[dict[str, Any], str]], judged: str) -> list[dict[str, Any]]:
        """The values that the judged text does not have: as they are written, or in other words of JSON."""
        quotable = _SPACE.sub("", judged)
        others = [self._said(value) for value, _ in _objects(judged.replace("\\", ""))]
        return [
            value
            for value, text in candidates
            if _SPACE.sub("", text) not in quotable and self._said(value) not in others
        ]

    def _said(self, value: Mapping[str, Any]) -> tuple[str, str]:
        """Return a key that is equal for equal verdicts."""
        return str(value.get(self.name)), str(value.get("reason") or "")


def checked_verdict(model: type[Verdict], values: Mapping[str, Any]) -> Verdict:
    """The values as a `model`.

    Raises:
        VerdictError: for the first value that does not fit.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise VerdictError(f"{place}: {first['msg']} (got {first['input']!r:.80})".removeprefix(": ")) from None


def code_rule(code: str) -> str:
    """Return the instruction that distinguishes a judge's own verdict from a quoted one."""
    return f'If you reply with more than the JSON object, add the field "{_CODE}": "{code}" to it.'


@lru_cache(maxsize=256)
def score_form(low: float, high: float) -> VerdictForm:
    """One score on a scale: `score`."""
    return VerdictForm("score", *_scale(low, high))


@lru_cache(maxsize=256)
def rubric_form(criteria: tuple[str, ...], low: float, high: float) -> VerdictForm:
    """A score for each criterion: `scores`, by the criteria's names."""
    kind, schema, example = _scale(low, high)
    scores = TypedDict("scores", dict.fromkeys(criteria, kind))  # type: ignore[misc]
    each = ", ".join(f"{json.dumps(name)}: {example}" for name in criteria)
    return VerdictForm("scores", scores, _object_schema(dict.fromkeys(criteria, schema)), f"{{{each}}}")


@lru_cache
def pair_form() -> VerdictForm:
    """The better of A and B: `winner`."""
    kind = Annotated[Winner, BeforeValidator(winner)]
    return VerdictForm("winner", kind, {"type": "string", "enum": ["A", "B", "tie"]}, '"A", "B" or "tie"')


def _scale(low: float, high: float) -> tuple[Any, dict[str, Any], str]:
    """Type, schema and example; on a scale wider than 1 the judge must give whole numbers, but others are accepted."""
    whole = high - low > 1 and low == int(low) and high == int(high)
    bounds = (int(low), int(high)) if whole else (low, high)
    schema = {"type": "integer" if whole else "number", "minimum": bounds[0], "maximum": bounds[1]}
    example = f"<a {'whole ' if whole else ''}number from {low:g} (worst) to {high:g} (best)>"
    return Annotated[float, Field(ge=low, le=high), BeforeValidator(_number)], schema, example


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    required: Sequence[str] = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def json_object(text: str) -> tuple[dict[str, Any], str] | None:
    """The text as one object, with the text."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return (value, text) if isinstance(value, dict) else None


def _objects(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The JSON objects in a text, in order, with the text of each; nested objects are not listed."""
    decoder, at = json.JSONDecoder(strict=False), text.find("{")
    for _ in range(_MOST_OBJECTS):
        if at < 0:
            return
        end = at + 1
        try:
            value, end = decoder.raw_decode(text, at)
            yield value, text[at:end]
        except ValueError:
            pass
        except RecursionError:  # the next braces belong to the same nested value
            end = at + _DEEP
        at = text.find("{", end)
