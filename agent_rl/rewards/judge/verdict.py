"""Verdicts: what a judge must say, as pydantic models, and how it is read out of what the judge did say.

A reply is JSON where the server can be told to write it. Where it cannot, a JSON object is looked for in the text:
after the thoughts, in a code block or between other words, the last one that is a verdict. One that the judge only
quotes from what it judges does not count while there is another. Nothing is guessed and nothing clamped: a score
outside its range, a word in place of a number, a missing criterion are a `VerdictError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

__all__ = ["PairVerdict", "Verdict", "VerdictError", "VerdictForm", "pair_form", "rubric_form", "score_form"]

MAX_REASON = 600
"""Characters of a reason that are kept."""
_SCANNED = 16_384
"""Characters at the end of a reply in which an object is looked for."""
_MOST_OBJECTS = 1_000
"""Braces that are tried."""
_DEEP = 500
"""Characters that a nest too deep for the parser has at least."""
_SPACE = re.compile(r"[\s|]+")  # a fence has a bar before each line
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class VerdictError(ValueError):
    """A reply that holds no verdict that can be used."""


def _number(value: Any) -> Any:
    """A bool is a number for pydantic alone."""
    if isinstance(value, bool):
        raise ValueError("true and false are no numbers")
    return value


def _winner(value: Any) -> Any:
    """`a`, `B` and `Tie` are what they look like."""
    if not isinstance(value, str):
        return value
    return {"a": "A", "b": "B"}.get(value.strip().lower(), value.strip().lower())


def _reason(value: Any) -> Any:
    """Bounded, and without halves of characters, which JSON can write and a file cannot."""
    return value.encode("utf-8", "replace").decode()[:MAX_REASON] if isinstance(value, str) else ""


Reason = Annotated[str, BeforeValidator(_reason), Field(max_length=MAX_REASON)]


class Verdict(BaseModel):
    """What every verdict has."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    reason: Reason = ""


class PairVerdict(Verdict):
    """Which of two is better."""

    winner: Annotated[Literal["A", "B", "tie"], BeforeValidator(_winner)]


class VerdictForm:
    """One form of verdict: its model, its JSON schema, and how the judge is asked for it.

    Args:
        model: what a verdict is validated by.
        example: of the JSON, as the judge is shown it.
    """

    def __init__(self, model: type[Verdict], example: str) -> None:
        self.model = model
        self.schema = _strict(model.model_json_schema())
        self.instructions = f"Reply with one JSON object and nothing else:\n{example}"

    def schema_for(self, max_reason: int) -> dict[str, Any]:
        """The schema, with a reason of at most so many characters."""
        reason = {"reason": {"type": "string", "maxLength": max_reason}}
        return {**self.schema, "properties": {**self.schema["properties"], **reason}}

    def read(self, reply: str, judged: str = "") -> Verdict:
        """The verdict in a reply.

        Args:
            reply: all that the judge said.
            judged: what it was shown, fenced or not; an object that is found there too may be a quotation.

        Raises:
            VerdictError: there is none, or it breaks the form.
        """
        said = _THOUGHT.sub("", reply).rpartition("</think>")[2].strip()
        whole = _object(reply) or _object(said)
        found = [whole] if whole is not None else list(_objects(said[-_SCANNED:]))
        candidates = [each for each in found if self._required <= each[0].keys()]
        if not candidates:
            raise VerdictError(f"there is no verdict in the reply ({len(reply)} characters)")
        quotable = _squeezed(judged)
        own = [each for each in candidates if _squeezed(each[1]) not in quotable]
        verdict, _ = (own or candidates)[-1]
        try:
            return self.model.model_validate(verdict)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise VerdictError(f"{place}: {first['msg']} (it says {first['input']!r:.80})") from None

    @property
    def _required(self) -> set[str]:
        return {name for name, field in self.model.model_fields.items() if field.is_required()}


def score_form(low: float, high: float) -> VerdictForm:
    """One score of a scale: a model with `reason` and `score`."""
    model = create_model("ScoreVerdict", __base__=Verdict, score=(_scale(low, high), ...))
    return VerdictForm(model, f'{{"reason": "<one to three sentences>", "score": <{_range(low, high)}>}}')


@lru_cache(maxsize=256)
def rubric_form(criteria: tuple[str, ...], low: float, high: float) -> VerdictForm:
    """A score for each criterion: a model with `reason` and `scores`, a model with the criteria's names."""
    fields: Any = {f"criterion_{i}": (_scale(low, high), Field(alias=name)) for i, name in enumerate(criteria)}
    scores = create_model("Scores", __config__=ConfigDict(extra="ignore", allow_inf_nan=False), **fields)
    model = create_model("RubricVerdict", __base__=Verdict, scores=(scores, ...))
    each = ", ".join(f"{json.dumps(name)}: <{_range(low, high)}>" for name in criteria)
    return VerdictForm(model, f'{{"reason": "<one to three sentences>", "scores": {{{each}}}}}')


def pair_form() -> VerdictForm:
    """The better of A and B."""
    return VerdictForm(PairVerdict, '{"reason": "<one to three sentences>", "winner": "A", "B" or "tie"}')


def _scale(low: float, high: float) -> Any:
    """Whole numbers are asked for on a scale wider than 1; others are no mistake."""
    kind: dict[str, Any] = {"type": "integer"} if _whole(low, high) else {}
    return Annotated[float, Field(ge=low, le=high, json_schema_extra=kind), BeforeValidator(_number)]


def _whole(low: float, high: float) -> bool:
    return high - low > 1 and low == int(low) and high == int(high)


def _range(low: float, high: float) -> str:
    return f"a {'whole ' if _whole(low, high) else ''}number from {low:g} (worst) to {high:g} (best)"


def _strict(schema: Any) -> Any:
    """As servers want a schema that they keep to: every property required, no other allowed, no titles or defaults."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "properties" in schema:
        properties = {name: _strict(each) for name, each in schema["properties"].items()}
        more = {"required": list(properties), "additionalProperties": False}
        rest = {key: _strict(value) for key, value in schema.items() if key == "$defs"}
        return {"type": "object", "properties": properties, **more, **rest}
    return {
        key: int(value) if isinstance(value, float) and value == int(value) else _strict(value)
        for key, value in schema.items()
        if key not in ("title", "default", "description")
    }


def _object(text: str) -> tuple[dict[str, Any], str] | None:
    """The text as one object, with the text."""
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return (value, text) if isinstance(value, dict) else None


def _objects(text: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The JSON objects in a text, in order, with the text of each; those inside others are not looked for."""
    decoder, at = json.JSONDecoder(strict=False), text.find("{")
    for _ in range(_MOST_OBJECTS):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except ValueError:
            at = text.find("{", at + 1)
            continue
        except RecursionError:  # what follows is part of the same nest, and as deep
            at = text.find("{", at + _DEEP)
            continue
        yield value, text[at:end]
        at = text.find("{", end)


def _squeezed(text: str) -> str:
    return _SPACE.sub("", text)
