"""Services with a database: one file per domain, named after it.

A domain is a class whose public methods are the agent's tools. The `service` tool runs them; the `service_state` scorer
replays an episode's calls and the correct ones, and compares the databases.
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
    """A service on a database: the public methods of a subclass are tools, described by their hints and docstrings.

    A method returns text, or data that the policy reads as JSON. If it raises ToolError, it has changed nothing.

    Args:
        records: the database of one episode.
    """

    def __init__(self, records: Records) -> None:
        self.records = records

    def run(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Run a method and return its result.

        Raises:
            ToolError: the method does not exist, or rejects the arguments.
        """
        method = None if name.startswith("_") else vars(type(self)).get(name)
        if method is None:
            raise ToolError(f"there is no tool {name!r}")
        try:
            bound = inspect.signature(method).bind(self, **arguments)
        except TypeError as error:  # wrong argument names
            raise ToolError(f"{name}: {error}") from error
        return method(*bound.args, **bound.kwargs)


def domain_names() -> list[str]:
    """Return the names of all domains."""
    return sorted(module.name for module in iter_modules(__path__) if module.name != "records")


def load_domain(name: str) -> type[Domain]:
    """Return the class of a domain.

    Raises:
        ConfigError: no domain has this name.
    """
    if name not in domain_names():
        raise ConfigError("domain", f"there is no domain {name!r}", did_you_mean(name, domain_names()))
    domain: type[Domain] = import_module(f"{__name__}.{name}").DOMAIN
    return domain


@cache
def operations(name: str) -> Mapping[str, Callable[..., Any]]:
    """Return a domain's tools, name -> method bound to an empty database, in the order of the class.

    Raises:
        ConfigError: the domain does not exist.
    """
    domain = load_domain(name)
    empty = domain(Records({}))
    return {name: getattr(empty, name) for name, method in vars(domain).items()
            if inspect.isfunction(method) and not name.startswith("_")}  # fmt: skip


def open_domain(name: str, database: str | Tables, initial: Mapping[str, Any] | None = None) -> Domain:
    """Return a domain with its own copy of the database.

    Args:
        name: the domain's name.
        database: `{table: {key: record}}`, or the path of a JSON file with it, which is read once and never written.
        initial: changes before an episode: `tables`, merged into the database, and `actions`, which run afterwards.

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
