"""`service`: the tools of a service desk, on a database that each episode copies.

    tools:
      - name: service
        config:
          domain: shop              # a file of agent_rl/tools/builtin/_service: shop, household
          database: shop.json       # {table: {key: record}}; read only

Changes made by a call last for the rest of the episode. A row can set another initial state: `extra_info.tools_kwargs.
<tool>.create_kwargs.initial` has `tables`, merged into the database, and `actions`, which run first; it must be the
same for all tools of the domain. The `service_state` scorer compares the final database with the right one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import Field

from agent_rl.settings.errors import Place, validated
from agent_rl.settings.section import Section
from agent_rl.tools.base import Tool
from agent_rl.tools.builtin._service import Domain, open_domain, operations
from agent_rl.tools.builtin._service.records import read_tables
from agent_rl.tools.functions import describe
from agent_rl.tools.spec import Toolset, ToolSpec

__all__ = ["ServiceConfig", "ServiceDesk", "ServiceTool"]


class ServiceConfig(Section):
    """The entry's `config`."""

    domain: str
    """Name of the domain."""
    database: str = Field(min_length=1)
    """Path of the JSON file."""


class _Operation(ServiceConfig):
    operation: str


class ServiceTool(Tool):
    """One method of a domain; the tools of an episode share its database."""

    Config = _Operation
    settings: _Operation

    async def call(self, arguments: dict[str, Any]) -> str:
        """Run the method and return its result; calls of an episode never overlap."""
        domain = await self.scope.get(("service", self.settings.domain, self.settings.database), self._opened)
        result = domain.run(self.settings.operation, arguments)
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Domain]:
        yield open_domain(self.settings.domain, self.settings.database, self.create_kwargs.get("initial"))


class ServiceDesk(Toolset):
    """The tools of one domain."""

    name = "service"

    @classmethod
    def tools(cls, config: Mapping[str, Any]) -> list[ToolSpec]:
        """Return one tool per method.

        Raises:
            ConfigError: the domain does not exist, or the database cannot be read.
        """
        settings = validated(ServiceConfig, config)
        methods = operations(settings.domain)
        read_tables(settings.database)
        specs = []
        for name, method in methods.items():
            about = describe(method, Place(name), parameters=True)
            specs.append(ToolSpec(cls=ServiceTool, config={**config, "operation": name}, **about))
        return specs
