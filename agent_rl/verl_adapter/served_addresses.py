"""Where a run's own reward models are, written into the configuration that its workers get.

A model of the component `reward_model` without a `url` is the served one of the same name; it also gets the path of the
tokenizer, the kind, the engine and the temperature, unless the component has its own. Anything else below `agent_rl`
that takes a URL can name a served model as `http://served/<name>`: `http://served/critic/v1` for a judge, for example.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_rl.errors import ConfigError, did_you_mean
from agent_rl.settings import SECTION
from agent_rl.settings.serving import ServedModelSettings

__all__ = ["KIND", "Served", "fill_in", "named", "require_known"]

KIND = "reward_model"
"""The kind of component whose models are looked up by name."""

_PLACE = re.compile(r"^http://served/(?P<name>[A-Za-z0-9_.-]+)(?=/|$)")


@dataclass(frozen=True, slots=True)
class Served:
    """A model that answers."""

    address: str
    """`http://host:port`."""
    settings: ServedModelSettings


def fill_in(section: Any, served: Mapping[str, Served]) -> Any:
    """A copy of a section of plain data with the addresses of the served models in it."""
    if isinstance(section, Mapping):
        filled = {key: fill_in(value, served) for key, value in section.items()}
        return _component(filled, served) if _is_component(filled) else filled
    if isinstance(section, list):
        return [fill_in(value, served) for value in section]
    place = _PLACE.match(section) if isinstance(section, str) else None
    if place is None or place["name"] not in served:
        return section
    return served[place["name"]].address + section[place.end() :]


def require_known(section: Any, names: set[str]) -> None:
    """Refuse names of models that the run does not serve.

    Args:
        section: the section `agent_rl` as plain data.
        names: of the models that it serves.

    Raises:
        ConfigError: naming the key, and the nearest known name.
    """
    for key, name in named(section):
        if name not in names:
            remedy = f"Give its url, or serve it: agent_rl.reward.models.{name}.path. {did_you_mean(name, names)}"
            raise ConfigError(key, f"no model {name!r} is served by this run", remedy)


def named(section: Any, key: str = SECTION) -> Iterator[tuple[str, str]]:
    """Every key under which a served model is named in a section of plain data, and the name."""
    if isinstance(section, Mapping):
        if _is_component(section):
            entries = section["config"]["models"]
            yield from ((f"{key}.config.models.{name}", name) for name, entry in entries.items() if not _url(entry))
        for name, value in section.items():
            yield from named(value, f"{key}.{name}")
    elif isinstance(section, list):
        for index, value in enumerate(section):
            yield from named(value, f"{key}[{index}]")
    elif isinstance(section, str) and (place := _PLACE.match(section)):
        yield key, place["name"]


def _is_component(section: Mapping[str, Any]) -> bool:
    config = section.get("config")
    return section.get("kind") == KIND and isinstance(config, Mapping) and isinstance(config.get("models"), Mapping)


def _component(section: dict[str, Any], served: Mapping[str, Served]) -> dict[str, Any]:
    models = {
        name: entry if _url(entry) or name not in served else _entry(entry or {}, served[name])
        for name, entry in section["config"]["models"].items()
    }
    return section | {"config": section["config"] | {"models": models}}


def _entry(entry: Mapping[str, Any], model: Served) -> dict[str, Any]:
    settings = model.settings
    known = {
        "kind": settings.kind,
        "engine": settings.engine,
        "model": settings.path,
        "tokenizer": settings.path,
        "temperature": settings.temperature,
    }
    return known | {key: value for key, value in entry.items() if value is not None} | {"url": model.address}


def _url(entry: Any) -> Any:
    return isinstance(entry, Mapping) and entry.get("url")
