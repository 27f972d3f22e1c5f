"""Reads YAML files, and turns an invalid configuration into a `ConfigError` with file, line, key, value and remedy.

    place = Place(file=path) / "tools" / 0
    config = validated(SearchConfig, data, place / "config")

Pydantic's errors for a union's alternatives are merged into one sentence. Files may contain omegaconf interpolations.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from agent_rl.errors import AgentRLError, ConfigError, did_you_mean
from agent_rl.settings.user_code import UserCodeError

Model = TypeVar("Model", bound=BaseModel)

_CHANGE = "Change the value or remove the key"
_EXPECTED = {
    "bool": "true or false",
    "dict": "a mapping",
    "finite": "a finite number",
    "float": "a number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "int": "a whole number",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "list": "a list",
    "literal_error": "{expected}",
    "model": "a mapping",
    "string": "text",
    "string_pattern_mismatch": "text that matches '{pattern}'",
    "string_too_short": "text of at least {min_length} characters",
    "too_long": "a list of at most {max_length}",
    "too_short": "a list of at least {min_length}",
    "tuple": "a list",
}
"""Descriptions of the expected value; a key is an error type of pydantic, or the first word of an error type."""

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = 200
_shortened.maxdict = _shortened.maxlist = 20


class Section(BaseModel):
    """A section of the configuration, in which unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InvalidValueError(ValueError):
    """Raised by a model's validator if there is a better remedy than changing the value."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True)
class Place:
    """The location of a value in the user's configuration; `place / "key"` and `place / 0` are nested locations."""

    key: str = ""
    """The key as shown in messages, for example `agent_rl.budget.max_seconds` or `tools[0] (search).config`."""
    file: Path | None = None
    """The YAML file that contains the value; None if the value came from elsewhere or the key alone locates it."""
    path: tuple[str | int, ...] = ()
    """Keys and list positions that lead from the top of the file to the value."""

    def __truediv__(self, part: str | int) -> Place:
        key = f"{self.key}[{part}]" if isinstance(part, int) else f"{self.key}.{part}".lstrip(".")
        return replace(self, key=key, path=(*self.path, part))

    def __str__(self) -> str:
        return self.key if self.file is None else located(self.file, self.path, self.key)

    def labelled(self, label: str) -> Place:
        """Return this location with a label after its key, as in `tools[0] (search)`."""
        return replace(self, key=f"{self.key} ({label})")

    def error(self, problem: str, remedy: str) -> ConfigError:
        """Return the error to raise for the value at this location."""
        return ConfigError(str(self), problem, remedy)

    @contextmanager
    def around(self, remedy: str = _CHANGE) -> Iterator[None]:
        """Add this location to the errors of a check that knows only the value.

        Args:
            remedy: the remedy for a ValueError that does not contain one.

        Raises:
            ConfigError: the check raised a ValueError or a ConfigError. A ConfigError's key is appended to this
                location's key.
            UserCodeError: the check raised any other exception, which is a bug in the check.
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
    """Validate the data with a pydantic model.

    Raises:
        ConfigError: a value is invalid; the error contains its location, the expected value and an example.
    """
    try:
        return model.model_validate(dict(data) if isinstance(data, Mapping) else data)
    except ValidationError as error:
        problems = [_Problem(details, model, data, place or Place()) for details in error.errors()]
        first = min(problems, key=lambda problem: problem.rank)
        raise first.error([problem for problem in problems if problem.place == first.place]) from error


class _Problem:
    """One of pydantic's errors, with its location in the data.

    Attributes:
        part: the last key or list position of the location.
        models: the models that may have the key `part`.
        field: the field for `part`; None means that the key is unknown, or that its mapping accepts any key.
    """

    def __init__(self, details: Mapping[str, Any], model: type[BaseModel], data: Any, place: Place) -> None:
        self.kind, self.details, self.value = details["type"], details, details["input"]
        self.place, self.part = place, ""
        self.models: list[type[BaseModel]] = [model]
        self.field: FieldInfo | None = None
        nested = self.models
        for part in details["loc"]:  # a location has keys and positions, mixed with names of union alternatives
            is_missing = self.kind == "missing" and part == details["loc"][-1]
            is_key = isinstance(data, Mapping) and (part in data or is_missing)
            if not is_key and not (isinstance(data, list | tuple) and isinstance(part, int)):
                continue
            self.place, self.part, self.models = self.place / part, part, nested
            self.field = next((kind.model_fields[part] for kind in nested if part in kind.model_fields), None)
            nested = nested if self.field is None else _models(self.field.annotation)
            data = (data if isinstance(data, Mapping) else dict(enumerate(data))).get(part)
        self.rank = (self.kind != "extra_forbidden", -len(self.place.path))  # a misspelled key also counts as missing

    def error(self, alternatives: Sequence[_Problem]) -> ConfigError:
        """Return the `ConfigError` for this problem; `alternatives` are all problems at the same location."""
        shown = "null" if self.value is None else _shortened.repr(self.value)
        if self.kind == "extra_forbidden":
            known = [name for kind in self.models for name in kind.model_fields]
            return self.place.error(f"unknown key (value {shown})", did_you_mean(str(self.part), known))
        if self.kind == "missing" and isinstance(self.part, int):
            return self.place.error(f"missing in the list {shown}", "Add the element")
        if self.kind == "missing":
            return self.place.error("missing", f"Write `{self.part}: {self._example or '...'}`")
        if self.kind in ("value_error", "assertion_error"):
            cause = self.details["ctx"]["error"]
            return self.place.error(f"{cause} (value {shown})", getattr(cause, "remedy", _CHANGE))
        expected = " or ".join(dict.fromkeys(problem.expected for problem in alternatives))
        return self.place.error(f"expected {expected}, got {shown}", self._remedy(alternatives))

    @property
    def expected(self) -> str:
        """A description of the value that this alternative expects."""
        form = _EXPECTED.get(self.kind) or _EXPECTED.get(self.kind.partition("_")[0])
        return form.format(**self.details.get("ctx", {})).replace("'", "`") if form else f"{self.details['msg']}"

    @property
    def _example(self) -> str:
        """An example value from the field's declaration, or "" if the field declares none."""
        return str(self.field.examples[0]) if self.field is not None and self.field.examples else ""

    def _remedy(self, alternatives: Sequence[_Problem]) -> str:
        words = [
            word for item in alternatives if item.kind == "literal_error" for word in item.expected.split("`")[1::2]
        ]
        if words and isinstance(self.value, str):
            return did_you_mean(self.value, words)
        if self._example:
            return f"Write, for example, `{self.part}: {self._example}`"
        if self.field is None or self.field.is_required():
            return "Change the value"
        default = self.field.get_default(call_default_factory=True)
        if not isinstance(default, BaseModel) and default not in (None, "", (), [], {}):
            return f"Write, for example, `{self.part}: {json.dumps(default)}`, or remove the key"
        models = [] if get_origin(self.field.annotation) is dict else _models(self.field.annotation)
        keys = [name for kind in models for name in kind.model_fields]
        return f"Write a mapping with these keys: {', '.join(keys)}" if keys else _CHANGE


def _models(kind: Any) -> list[type[BaseModel]]:
    """Return the models in a type, including those in union alternatives, list items and mapping values."""
    if get_origin(kind) is None and isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for argument in get_args(kind) for model in _models(argument)]


def read_yaml(path: Path, overrides: Sequence[str] = ()) -> Any:
    """Read a YAML file as plain data, and resolve interpolations such as `${oc.env:INDEX}`.

    Args:
        path: the YAML file.
        overrides: arguments such as `port=9000`, which override values in the file.

    Raises:
        ConfigError: the file does not exist, the file or an override is not valid YAML, or a value cannot be resolved.
    """
    from omegaconf import OmegaConf  # imported here because it takes 0.12 s to import
    from omegaconf.errors import OmegaConfBaseException

    try:
        with yaml_errors(path):
            config = OmegaConf.load(path)
        if overrides:
            config = OmegaConf.merge(config, from_words(overrides))
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        place = located(path, parts_of(error.full_key or ""), error.full_key)
        raise ConfigError(place, str(error).splitlines()[0], "Set the variable, or write the value directly") from error


def from_words(words: Sequence[str]) -> Any:
    """Return the configuration that `key=value` words define; the values are YAML.

    Raises:
        ConfigError: a value is not valid YAML.
    """
    from omegaconf import OmegaConf

    for word in words:
        key, _, text = word.partition("=")
        try:
            OmegaConf.from_dotlist([word])
        except yaml.MarkedYAMLError as error:
            problem = f"{text!r} is not valid YAML: {error.problem}"
            raise ConfigError(key, problem, "Correct or quote the value") from error
    return OmegaConf.from_dotlist(list(words))


@contextmanager
def yaml_errors(path: Path) -> Iterator[None]:
    """Turn errors from reading a YAML file into a `ConfigError` with file, line and column.

    Args:
        path: the file to name in the error, unless the error occurred in an included file.
    """
    try:
        yield
    except FileNotFoundError:
        nearest = did_you_mean(path.name, (file.name for file in path.parent.glob("*.y*ml")))
        raise ConfigError(str(path), "there is no such file", nearest) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        file = path if mark is None or mark.name.startswith("<") else mark.name
        place = str(file) if mark is None else f"{file}:{mark.line + 1}:{mark.column + 1}"
        problem = ", ".join(filter(None, [error.problem, error.context]))
        raise ConfigError(place, f"invalid YAML: {problem}", "Fix the syntax there or in the line above") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"invalid YAML: {error}", "Save the file as UTF-8 text") from error
    except (OSError, TypeError) as error:  # the file is unreadable, or its top level is a scalar
        raise ConfigError(str(path), f"the file cannot be read: {error}", "Pass a readable YAML file") from error


def parts_of(key: str) -> list[str]:
    """Split a dotted key into keys and positions: `tools[0] (search).config` becomes tools, 0 and config."""
    return re.findall(r"[^.\[\]]+", re.sub(r" \([^)]*\)", "", key))


def located(path: Path, keys: Sequence[str | int], key: str | None) -> str:
    """Return a key preceded by its file and line, as in `file:line: key`."""
    line = line_of(path, keys)
    return ": ".join(filter(None, [f"{path}:{line}" if line else str(path), key]))


def line_of(path: Path, keys: Sequence[str | int]) -> int | None:
    """Return the line of the deepest of the nested keys that exists in the file, or None."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return None
    line = None
    for key in keys:
        entries = {}
        if isinstance(node, yaml.MappingNode):
            entries = {name.value: (name, value) for name, value in node.value}
        elif isinstance(node, yaml.SequenceNode):
            entries = {str(number): (value, value) for number, value in enumerate(node.value)}
        if str(key) not in entries:
            break
        start, node = entries[str(key)]
        line = start.start_mark.line + 1
    return line
