"""OpenEnv environments: a folder from `openenv init` (`openenv:FOLDER`), or a server (`openenv:http://127.0.0.1:8000`).

A folder is served in this family's process, and the sessions send requests to the server over loopback. The policy acts
with the tools of an MCP environment, or with an `act` tool, whose arguments are the environment's action. An episode's
reward is the sum of its steps' rewards.

    python -m agent_rl.environments.install openenv
"""

from __future__ import annotations

import json
import sys
import urllib.request
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_rl.environments.serve import CallError, on_loopback

ROWS = {"train": range(256), "test": range(1_000_000, 1_000_032)}
"""The seeds of the episodes in each split."""
SESSIONS = 1024
"""Maximum number of concurrent sessions of a served folder, if its environment supports more than one."""


def environment(identifier: str) -> Any:
    """Return the environment class for a folder or an address; see `family_class`."""
    from agent_rl.environments.served import class_of

    is_address = identifier.startswith(("http://", "https://"))
    return class_of("openenv", identifier if is_address else str(Path(identifier).expanduser().resolve()))


def start() -> None:
    """Import the modules that sessions need."""
    import_module("uvicorn")
    import_module("openenv.core.generic_client")


def describe(identifier: str) -> dict[str, Any]:
    """Return the MCP tools, or the `act` tool with the schema of the action."""
    address = _address(identifier)
    about, action = (json.load(urllib.request.urlopen(f"{address}/{path}")) for path in ("metadata", "schema"))
    tools = _mcp_tools(address)
    if not tools:
        parameters = action["action"]
        parameters["properties"].pop("metadata", None)
        text = parameters.pop("description", None) or "Act in the environment."
        tools = [{"name": "act", "description": text, "parameters": parameters}]
    system = f"{about['name']}: {about['description']}. Act with the tools until the episode is over."
    return {"system": system, "tools": tools, "methods": []}


def rows(identifier: str, split: str, seed: int) -> list[dict[str, Any]]:
    """Return a row for each episode, with the episode's seed."""
    return [{"prompt": "The environment has been reset.", "seed": seed + number} for number in ROWS[split]]


class Session:
    """One episode in one session of the server."""

    def __init__(self, identifier: str, row: dict[str, Any]) -> None:
        from openenv.core.generic_client import GenericEnvClient

        self._client: Any = GenericEnvClient(_address(identifier)).sync()
        self._uses_tools = bool(_mcp_tools(_address(identifier)))
        self._total = 0.0
        self.text = json.dumps(self._client.reset(seed=row["seed"]).observation)

    def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Take one step in the environment; return the observation, and whether the episode is over."""
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments} if self._uses_tools else arguments
        try:
            result = self._client.step(action)
        except RuntimeError as error:
            raise CallError(str(error)) if "VALIDATION_ERROR" in str(error) else error from error
        self._total += float(result.reward or 0.0)
        return json.dumps(result.observation), bool(result.done)

    def reward(self, answer: str | None) -> float:
        """Return the sum of the rewards of all steps."""
        return self._total

    def close(self) -> None:
        """End the session on the server."""
        self._client.close()


@cache
def _mcp_tools(address: str) -> list[dict[str, Any]]:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    message = urllib.request.Request(
        f"{address}/mcp", json.dumps(request).encode(), {"content-type": "application/json"}
    )
    result = json.load(urllib.request.urlopen(message)).get("result") or {}
    return [
        {
            "name": each["name"],
            "description": each.get("description") or each["name"],
            "parameters": each["inputSchema"],
        }
        for each in result.get("tools", [])
    ]


@cache
def _address(identifier: str) -> str:
    """Return the server's address, after starting the server if the identifier is a folder."""
    if identifier.startswith(("http://", "https://")):
        return identifier.rstrip("/")
    folder = Path(identifier)
    if not (folder / "openenv.yaml").is_file():
        raise ValueError(f"{folder} has no openenv.yaml; create an environment with: openenv init NAME")
    from openenv.core.env_server import http_server

    made = http_server.create_app

    def with_room(env: Any, *arguments: Any, **options: Any) -> Any:
        if getattr(env, "SUPPORTS_CONCURRENT_SESSIONS", False) and "concurrency_config" not in options:
            options["max_concurrent_envs"] = SESSIONS
        return made(env, *arguments, **options)

    http_server.create_app = with_room
    sys.path.insert(0, str(folder.parent))
    return on_loopback(import_module(f"{folder.name}.server.app").app)
