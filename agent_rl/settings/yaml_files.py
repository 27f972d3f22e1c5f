"""Reads YAML files with omegaconf's interpolations, and finds the line of a value in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from agent_rl.errors import ConfigError, did_you_mean


def read_yaml(path: Path, overrides: Sequence[str] = ()) -> Any:
    """Read a file as plain data; interpolations such as `${oc.env:INDEX}` are resolved.

    Args:
        path: the YAML file.
        overrides: words such as `port=9000`, which override the file.

    Raises:
        ConfigError: there is no such file, it is not YAML, or a value in it cannot be resolved.
    """
    from omegaconf import OmegaConf  # takes 0.12 s, and only tool files and services need it
    from omegaconf.errors import OmegaConfBaseException

    try:
        with yaml_errors(path):
            config = OmegaConf.load(path)
        if overrides:
            config = OmegaConf.merge(config, OmegaConf.from_dotlist(list(overrides)))
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        place = located(path, parts_of(error.full_key or ""), error.full_key)
        raise ConfigError(place, str(error).splitlines()[0], "Set the variable, or write the value directly") from error


@contextmanager
def yaml_errors(path: Path) -> Iterator[None]:
    """Turn errors from reading a YAML file into a `ConfigError` with file, line and column.

    Args:
        path: the file that an error names, unless it occurred in an included file.
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
        raise ConfigError(str(path), f"invalid YAML: {error}", "Save it as UTF-8 text") from error
    except (OSError, TypeError) as error:  # unreadable, or (from omegaconf) neither a mapping nor a list at the top
        raise ConfigError(str(path), f"it cannot be read: {error}", "Pass a readable YAML file") from error


def parts_of(key: str) -> list[str]:
    """Split a key into its keys and positions: `tools[0] (search).config` into tools, 0 and config."""
    return re.findall(r"[^.\[\]]+", re.sub(r" \([^)]*\)", "", key))


def located(path: Path, keys: Sequence[str | int], key: str | None) -> str:
    """Return a key after its file and line: `file:line: key`."""
    line = line_of(path, keys)
    return ": ".join(filter(None, [f"{path}:{line}" if line else str(path), key]))


def line_of(path: Path, keys: Sequence[str | int]) -> int | None:
    """Return the line of the innermost nested key or position that the file contains, or None."""
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
