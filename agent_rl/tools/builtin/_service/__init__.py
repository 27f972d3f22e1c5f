"""Services with a database: one file a domain, found by its name.

A domain is a class whose public methods are the agent's tools. The tool `service` runs them; the scorer `service_state`
runs an episode's calls and the right ones again, and compares the databases.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from agent_rl.errors import ConfigError, ToolError, did_you_mean
from agent_rl.tools.builtin._service.records import Records, Tables, read_tables

__all__ = ["Domain", "domain_names", "load_domain", "open_domain", "operations"]


class Domain:
    """A service on a database: the public methods of a subclass are tools, described by hints and docstring.

    A method returns text, or data that the policy reads as JSON. It raises ToolError before it changes anything.

    Args:
        records: the database of one episode.
    """

    def __init__(self, records: Records) -> None:
        self.records = records

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The result of a method.

        Raises:
            ToolError: there is no such method, it takes other arguments, or refuses these.
        """
        method = None if name.startswith("_") else vars(type(self)).get(name)
        if method is None:
            raise ToolError(f"there is no tool {name!r}")
        try:
            given = inspect.signature(method).bind(self, **arguments)
        except TypeError as error:  # arguments of other names
            raise ToolError(f"{name}: {error}") from error
        return method(*given.args, **given.kwargs)


def domain_names() -> list[str]:
    """The names of all domains."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "records")


def load_domain(name: str) -> type[Domain]:
    """The domain of a name.

    Raises:
        ConfigError: no domain has this name.
    """
    if name not in domain_names():
        raise ConfigError("domain", f"there is no domain {name!r}", did_you_mean(name, domain_names()))
    domain: type[Domain] = import_module(f"{__name__}.{name}").DOMAIN
    return domain


@cache
def operations(name: str) -> Mapping[str, Callable[..., Any]]:
    """The methods of a domain that are tools, by name, in the order of the class; bound to an empty database.

    Raises:
        ConfigError: there is no such domain.
    """
    domain = load_domain(name)
    empty = domain(Records({}))
    return {each: getattr(empty, each) for each, method in vars(domain).items()
            if inspect.isfunction(method) and not each.startswith("_")}  # fmt: skip


def open_domain(name: str, database: str | Tables, initial: Mapping[str, Any] | None = None) -> Domain:
    """A domain on a database of its own.

    Args:
        name: of the domain.
        database: `{table: {key: record}}`, or the path of a JSON file with it, which is read once and never written.
        initial: what is changed before an episode: `tables`, which are merged into the database, and `actions`.

    Raises:
        ConfigError: the file cannot be read.
        ToolError: an action fails.
    """
    domain = load_domain(name)(Records(read_tables(database) if isinstance(database, str) else database))
    for table, records in ((initial or {}).get("tables") or {}).items():
        for key, record in records.items():
            domain.records.merge(table, key, record)
    for action in (initial or {}).get("actions") or ():
        domain.run(action["name"], action["arguments"])
    return domain
