"""Defines the forms of judges' verdicts, and finds verdicts in JSON form in replies.

If the server can enforce a schema, the whole reply is JSON. Otherwise, the last JSON object that is a verdict is used,
even if it is in a code block or within other text. An object that is also in the judged text may be a quotation and
is ignored. A judge that writes more than the object can add the request's code, which a quotation cannot contain.
Values are neither guessed nor clamped: a score out of range, a word instead of a number or a missing criterion raises a
`VerdictError`. The json-repair library is not used, because it completes broken JSON. A prompt template that is a class
reads tags (`agent_rl.rewards.judge.reply`); `VerdictForm.of` converts its verdict.
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

Verdict = TypeVar("Verdict", bound=BaseModel)
Winner = Literal["A", "B", "tie"]
POINTS: dict[str, float] = {"A": 1.0, "tie": 0.5, "B": 0.0}
"""The points of answer A for each possible winner of the pair."""
SWAPPED: dict[str, Winner] = {"A": "B", "B": "A", "tie": "tie"}
"""Maps the winner of a pair to the winner of the same pair in the other order."""

MAX_REASON = 600
"""Maximum length of a stored reason, in characters."""
SCANNED = 16_384
"""Only this many characters at the end of a reply are searched for a verdict, unless the whole reply is a verdict."""
_MOST_OBJECTS = 1_000
"""Maximum number of braces at which the search tries to parse an object."""
_DEEP = 500
"""Number of characters to skip after an object that is nested too deeply for the parser."""
_SPACE = re.compile(r"[\s|\\]+")  # characters that comparisons ignore: fences add bars, nested JSON adds backslashes
_CODE = "code"
FENCED = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class VerdictError(ValueError):
    """Raised when a reply has no usable verdict."""


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would accept a boolean as a number
        raise ValueError("true and false are not numbers")
    return value


def winner(value: Any) -> Any:
    """Normalize the name of a winner: `response a` and `answer a` become A, regardless of case."""
    text = value.strip().lower().removeprefix("response ").removeprefix("answer ") if isinstance(value, str) else value
    return {"a": "A", "b": "B"}.get(text, text) if isinstance(text, str) else text


def _reason(value: Any) -> Any:
    """Shorten a reason, and replace lone surrogates, which JSON may contain but a file cannot."""
    return encodable(value)[:MAX_REASON] if isinstance(value, str) else ""


class JudgeVerdict(BaseModel):
    """Base class of the verdict models; each `VerdictForm` adds a field."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    reason: Annotated[str, BeforeValidator(_reason)] = ""


class VerdictForm:
    """One form of verdict, with its model, its JSON schema, and the instruction to the judge.

    Args:
        name: name of the verdict's field, in addition to `reason`.
        kind: type of the field.
        schema: JSON schema of the field.
        example: the field's JSON in the instruction to the judge.
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
        """Return the JSON schema, as strict as servers require; the reason has at most `max_reason` characters."""
        return _object_schema({"reason": {"type": "string", "maxLength": max_reason}, self.name: self._schema})

    def read(self, reply: str, judged: str = "", code: str = "") -> Any:
        """Extract the verdict from a reply, as an instance of `model`.

        Args:
            reply: the whole reply of the judge.
            judged: the judged text, fenced or not.
            code: the code from `code_rule`, which the judged text cannot contain.

        Raises:
            VerdictError: the reply contains no verdict, only quoted verdicts, or a verdict in another form.
        """
        body = _THOUGHT.sub("", reply).rpartition("</think>")[2].strip()
        whole = json_object(reply) or json_object(FENCED.sub(r"\1", body))
        objects = [(whole, reply)] if whole is not None else list(_objects(body[-SCANNED:]))
        candidates = [(value, text) for value, text in objects if self.name in value]
        if not candidates:
            raise VerdictError(f"there is no verdict in the reply ({len(reply)} characters)")
        own = [value for value, _ in candidates if whole is not None or (code and value.get(_CODE) == code)]
        own = own or self._unquoted(candidates, judged)
        if not own:
            raise VerdictError("the only verdict in the reply is also in the judged text, so it may be a quotation")
        return checked_verdict(self.model, own[-1])

    def of(self, verdict: Any) -> Any:
        """Convert a prompt template's verdict to an instance of `model`; its thoughts become the reason.

        Raises:
            VerdictError: the verdict does not have this form.
        """
        names = {"reason": "think", self.name: "preference" if self.name == "winner" else self.name}
        return checked_verdict(self.model, {name: getattr(verdict, field) for name, field in names.items()})

    def _unquoted(self, candidates: Sequence[tuple[dict[str, Any], str]], judged: str) -> list[dict[str, Any]]:
        """Return the candidates that occur in the judged text neither literally nor as equal JSON."""
        quotable = _SPACE.sub("", judged)
        quotations = [self._identity(value) for value, _ in _objects(judged.replace("\\", ""))]
        return [
            value
            for value, text in candidates
            if _SPACE.sub("", text) not in quotable and self._identity(value) not in quotations
        ]

    def _identity(self, value: Mapping[str, Any]) -> tuple[str, str]:
        """Return a key for comparisons; equal verdicts have equal keys."""
        return str(value.get(self.name)), str(value.get("reason") or "")


def checked_verdict(model: type[Verdict], values: Mapping[str, Any]) -> Verdict:
    """Validate values as an instance of `model`.

    Raises:
        VerdictError: a value is not valid; the error describes the first such value.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise VerdictError(f"{place}: {first['msg']} (got {first['input']!r:.80})".removeprefix(": ")) from None


def code_rule(code: str) -> str:
    """Return the instruction to add a code, which distinguishes the judge's own verdict from a quoted verdict."""
    return f'If you reply with more than the JSON object, add the field "{_CODE}": "{code}" to it.'


@lru_cache(maxsize=256)
def score_form(low: float, high: float) -> VerdictForm:
    """Return the form of a verdict with one score on a scale, in the field `score`."""
    return VerdictForm("score", *_scale(low, high))


@lru_cache(maxsize=256)
def rubric_form(criteria: tuple[str, ...], low: float, high: float) -> VerdictForm:
    """Return the form of a verdict with a score per criterion, in the field `scores`."""
    kind, schema, example = _scale(low, high)
    scores = TypedDict("scores", dict.fromkeys(criteria, kind))  # type: ignore[misc]
    fields = ", ".join(f"{json.dumps(name)}: {example}" for name in criteria)
    return VerdictForm("scores", scores, _object_schema(dict.fromkeys(criteria, schema)), f"{{{fields}}}")


@lru_cache
def pair_form() -> VerdictForm:
    """Return the form of a verdict that names the better of A and B, in the field `winner`."""
    kind = Annotated[Winner, BeforeValidator(winner)]
    return VerdictForm("winner", kind, {"type": "string", "enum": ["A", "B", "tie"]}, '"A", "B" or "tie"')


def _scale(low: float, high: float) -> tuple[Any, dict[str, Any], str]:
    """Return a score's type, schema and example; the type accepts fractions even if the schema allows only integers."""
    whole = high - low > 1 and low == int(low) and high == int(high)
    bounds = (int(low), int(high)) if whole else (low, high)
    schema = {"type": "integer" if whole else "number", "minimum": bounds[0], "maximum": bounds[1]}
    example = f"<a {'whole ' if whole else ''}number from {low:g} (worst) to {high:g} (best)>"
    return Annotated[float, Field(ge=low, le=high), BeforeValidator(_number)], schema, example


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def json_object(text: str) -> dict[str, Any] | None:
    """Parse text as a JSON object; return None if it is anything else."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _objects(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each JSON object in the text, with its source; objects inside other objects are not yielded separately."""
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
        except RecursionError:  # skip ahead, because the next braces belong to the same nested value
            end = at + _DEEP
        at = text.find("{", end)
