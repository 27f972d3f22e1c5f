"""Turns a wrong configuration into a `ConfigError`: file and line, key, value, and what to write.

    place = Place(file=path) / "tools" / 0
    config = validated(SearchConfig, given, place / "config")

What pydantic reports is put in terms of the model's JSON schema (`agent_rl.settings.forms`), so a union gives
one sentence and every sentence has an example.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from agent_rl.errors import AgentRLError, ConfigError, did_you_mean
from agent_rl.settings.forms import SchemaPart, written
from agent_rl.settings.yaml_files import line_of, parts_of
from agent_rl.user_code import UserCodeError

__all__ = ["InvalidValueError", "Place", "validated"]

Model = TypeVar("Model", bound=BaseModel)

_CHANGE = "Change the value or remove the key"

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = 200
_shortened.maxdict = _shortened.maxlist = 20


class InvalidValueError(ValueError):
    """Raised by a model's validator that knows a better remedy than to change the value."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True)
class Place:
    """The location of a value in the user's configuration; `place / "key"` and `place / 0` are locations in it."""

    key: str = ""
    """As it is shown, for example `agent_rl.budget.max_seconds` or `tools[0] (search).config`."""
    file: Path | None = None
    """The YAML file with the value; None: it came from elsewhere, or the key alone says enough."""
    path: tuple[str | int, ...] = ()
    """Keys and list positions from the top of the file."""

    def __truediv__(self, part: str | int) -> Place:
        key = f"{self.key}[{part}]" if isinstance(part, int) else f"{self.key}.{part}".lstrip(".")
        return replace(self, key=key, path=(*self.path, part))

    def __str__(self) -> str:
        if self.file is None:
            return self.key
        line = line_of(self.file, self.path)
        return ": ".join(filter(None, [f"{self.file}:{line}" if line else str(self.file), self.key]))

    def labelled(self, label: str) -> Place:
        """The same place, shown with a label: `tools[0] (search)`."""
        return replace(self, key=f"{self.key} ({label})")

    def error(self, problem: str, remedy: str) -> ConfigError:
        """The error to raise for the value here."""
        return ConfigError(str(self), problem, remedy)

    @contextmanager
    def around(self, remedy: str = _CHANGE) -> Iterator[None]:
        """Errors of a check that knows only the value get this place.

        Args:
            remedy: for a ValueError that has none of its own.

        Raises:
            ConfigError: for a ConfigError, with its key put below this one, and for a ValueError.
            UserCodeError: for any other exception, which no check raises on purpose.
        """
        try:
            yield
        except ConfigError as error:
            key = f"{self.key}.{error.key}".strip(".")
            inner = replace(self, key=key, path=(*self.path, *parts_of(error.key)))
            raise inner.error(error.problem, error.remedy) from error
        except ValueError as error:
            raise self.error(str(error).rstrip("."), getattr(error, "remedy", remedy)) from error
        except AgentRLError:
            raise
        except Exception as error:
            raise UserCodeError.of(str(self), error) from error


def validated(model: type[Model], data: Any, place: Place | None = None) -> Model:
    """The data as a `model`.

    Raises:
        ConfigError: for the first value that does not fit, with its place, what is expected there and an example.
    """
    try:
        return model.model_validate(dict(data) if isinstance(data, Mapping) else data)
    except ValidationError as error:
        form = _form(model)
        problems = [_Problem(each, form, data, place or Place()) for each in error.errors()]
        raise min(problems, key=lambda problem: problem.rank).error() from error


class _Problem:
    """One of pydantic's errors, found in the model's form by its location."""

    def __init__(self, details: Mapping[str, Any], form: SchemaPart, data: Any, place: Place) -> None:
        self.kind, self.details = details["type"], details
        self.value = details["input"]
        self.place, self.form, self.parent = place, form, form
        self.expected = form
        self.part: str | int = ""
        self.is_misfit = False
        self._find(data)
        self.rank = (self.is_misfit, self.kind != "extra_forbidden")  # a key that is misspelled is also missing

    def _find(self, value: Any) -> None:
        for part in self.details["loc"]:
            if self.form.is_union:  # the part names the alternative that pydantic tried
                meant = self.form.fitting(value)
                if meant is None:
                    self.kind, self.value = "union", value
                    return
                self.form = meant
                is_container = isinstance(value, Mapping | list | tuple)
                self.is_misfit = self.kind.endswith("_type") or (self.kind == "literal_error" and is_container)
                continue
            if part == "[key]":
                self.form = self.expected = SchemaPart({}, {})
                return
            self.is_misfit = False
            self.parent, self.part = self.form, part
            self.form = self.expected = self.form.child(part)
            self.place = self.place / part
            value = value.get(part) if isinstance(value, Mapping) else _item(value, part)

    def error(self) -> ConfigError:
        shown = "null" if self.value is None else _shortened.repr(self.value)
        if self.kind == "extra_forbidden":
            return self.place.error(f"unknown key (value {shown})", did_you_mean(str(self.part), self.parent.keys))
        if self.kind == "missing":
            return self.place.error(f"missing: expected {self.form.expected()}", self._remedy(None))
        if self.kind in ("value_error", "assertion_error"):
            cause = self.details["ctx"]["error"]
            return self.place.error(f"{cause} (value {shown})", getattr(cause, "remedy", _CHANGE))
        if not (expected := self.expected.expected(self.value)):
            message = self.details["msg"].replace("Input should", "it should")
            return self.place.error(f"{message} (value {shown})", _CHANGE)
        return self.place.error(f"expected {expected}, got {shown}", self._remedy(self.value))

    def _remedy(self, value: Any) -> str:
        if (choices := self.form.choices) and isinstance(value, str):
            return did_you_mean(value, choices)
        example = self.form.example(value)
        if isinstance(example, Mapping):
            return f"Write keys below it{': ' * bool(self.form.keys)}{', '.join(self.form.keys)}"
        if isinstance(self.part, int):
            return f"Write {self.form.expected()} there"
        removable = "" if self.part in self.parent.required else ", or remove the key"
        return f"Write for example `{self.part}: {written(example)}`{removable}"


def _form(model: type[BaseModel]) -> SchemaPart:
    try:
        return SchemaPart(schema := model.model_json_schema(), schema.get("$defs", {}))
    except PydanticInvalidForJsonSchema:  # a field of a type that no YAML file holds
        return SchemaPart({}, {})


def _item(value: Any, part: str | int) -> Any:
    return value[part] if isinstance(value, list | tuple) and isinstance(part, int) and part < len(value) else None
