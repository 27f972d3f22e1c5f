"""What a model expects at a place, in words and as an example; read from the model's JSON schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

__all__ = ["SchemaPart", "written"]

_WORDS = {  # JSON type -> what one is called, and several
    "string": ("text", "text"),
    "integer": ("a whole number", "whole numbers"),
    "number": ("a number", "numbers"),
    "boolean": ("true or false", "booleans"),
    "array": ("a list", "lists"),
    "object": ("a mapping", "mappings"),
    "null": ("null", "null"),
}
_BOUNDS = {"exclusiveMinimum": "above", "minimum": "at least", "exclusiveMaximum": "below", "maximum": "at most"}


def written(value: Any) -> str:
    """A value as one line of YAML; `...` marks what only the user knows."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return text.removesuffix("...\n").strip().replace("'...'", "...") or "..."


@dataclass(frozen=True)
class SchemaPart:
    """A part of a JSON schema as pydantic writes it."""

    schema: Mapping[str, Any]
    definitions: Mapping[str, Any]

    @property
    def alternatives(self) -> list[SchemaPart]:
        """The schemas of a union, or this one; a value must fit one of them."""
        if "$ref" in self.schema:
            return self._of(self.definitions[self.schema["$ref"].rpartition("/")[2]]).alternatives
        options = self.schema.get("anyOf") or self.schema.get("oneOf")
        return [self] if options is None else [each for option in options for each in self._of(option).alternatives]

    @property
    def is_union(self) -> bool:
        """Whether there is a choice of types, null apart."""
        return len(self._typed) > 1

    @property
    def keys(self) -> list[str]:
        """The known keys of a mapping."""
        return [key for form in self._typed for key in form.schema.get("properties", ())]

    @property
    def required(self) -> list[str]:
        """The keys that a mapping must have."""
        return [key for form in self._typed for key in form.schema.get("required", ())]

    @property
    def choices(self) -> list[str]:
        """The words, where the value is one of several."""
        words = [word for form in self.alternatives for word in form._words]
        return words if all(isinstance(word, str) for word in words) else []

    def fitting(self, value: Any) -> SchemaPart | None:
        """The alternative of the value's type; None when there is none or more than one."""
        fitting = [form for form in self._typed if form._type in _types(value)]
        return fitting[0] if len(fitting) == 1 else None

    def child(self, part: str | int) -> SchemaPart:
        """What is expected below a key or at a position."""
        (schema,) = [form.schema for form in self._typed][:1] or [{}]
        if isinstance(part, int):
            positions = schema.get("prefixItems", ())
            found = positions[part] if part < len(positions) else schema.get("items")
        else:
            found = schema.get("properties", {}).get(part) or schema.get("additionalProperties")
        return self._of(found if isinstance(found, Mapping) else {})

    def expected(self, value: Any = None, *, several: bool = False) -> str:
        """What is expected, for a sentence that begins with `expected`; empty when the schema does not say.

        Args:
            value: what was given in its place.
            several: say it of the items of a list.
        """
        phrases = [form._phrase(value, several) for form in self.alternatives]
        return _either(dict.fromkeys(phrases)) if all(phrases) else ""

    def example(self, value: Any = None) -> Any:
        """A value that fits; made from the wrong one where it only lacks a list around it."""
        form = self._typed[0] if self._typed else self
        if form._type == "object":
            return {}
        if form._type == "array":
            items, count = form.child(0), form.schema.get("minItems", 1)
            is_number = items._type in ("integer", "number")
            return [value] if items.fitting(value) else list(range(count)) if is_number else [items.example()] * count
        if self.schema.get("default") is not None:
            return self.schema["default"]
        if form._words:
            return form._words[0]
        if form._type in ("integer", "number"):
            least = form.schema.get("minimum", form.schema.get("exclusiveMinimum", -1) + 1)
            return max(least, 1) if form.schema.get("maximum", 1) >= 1 else least
        return True if form._type == "boolean" else "..."

    @property
    def _typed(self) -> list[SchemaPart]:
        return [form for form in self.alternatives if form._type != "null"]

    @property
    def _type(self) -> str | None:
        kind: str | None = self.schema.get("type")
        return kind

    @property
    def _words(self) -> list[Any]:
        return list(self.schema.get("enum", ())) or ([self.schema["const"]] if "const" in self.schema else [])

    def _of(self, schema: Mapping[str, Any]) -> SchemaPart:
        return SchemaPart(schema, self.definitions)

    def _phrase(self, value: Any, several: bool) -> str:
        if self._words:
            return _either(f"`{word}`" for word in self._words)
        if self._type is None:
            return ""
        phrase = _WORDS[self._type][several]
        if self._type == "array":
            least, most = self.schema.get("minItems"), self.schema.get("maxItems")
            count = f"{least} " if least is not None and least == most else ""
            items = self.child(0).expected(several=True)
            phrase = f"{phrase} of {count}{items}" if items else phrase
        if self._type == "number" and isinstance(value, float) and not math.isfinite(value):
            phrase = "a finite number"
        if self.schema.get("minLength") or (self.schema.get("minItems") and not self.schema.get("maxItems")):
            phrase += " that is not empty"
        if "pattern" in self.schema:
            phrase += f" that matches `{self.schema['pattern']}`"
        bounds = [f"{word} {self.schema[bound]:g}" for bound, word in _BOUNDS.items() if bound in self.schema]
        return f"{phrase} {' and '.join(bounds)}".rstrip().replace("number at", "number of at")


def _either(phrases: Iterable[str]) -> str:
    *others, last = phrases
    return f"{', '.join(others)} or {last}" if others else last


def _types(value: Any) -> tuple[str, ...]:
    """The JSON types that a value of YAML fits."""
    kinds = {bool: ("boolean",), int: ("integer", "number"), float: ("number",), str: ("string",)}
    if isinstance(value, Mapping):
        return ("object",)
    return ("array",) if isinstance(value, list | tuple) else kinds.get(type(value), ())
