"""`McpServer`: the settings of an `mcp` entry for reaching its server."""

from __future__ import annotations

import os
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from agent_rl.errors import ConfigError
from agent_rl.settings.secrets import Secrets, secret
from agent_rl.tools.base import ToolConfig

MAX_MESSAGE_BYTES = 8 << 20
"""Maximum size of a result, in bytes; a larger result becomes an error."""
TOO_LARGE = f"the result is larger than {MAX_MESSAGE_BYTES >> 20} MiB"
_MIN_SECRET = 8  # minimum length of a secret to hide, because shorter ones may occur in other text by chance


class McpServer(ToolConfig):
    """The settings with which an `mcp` entry reaches its server."""

    command: list[str] = Field(default=[])
    url: str | None = None
    env: dict[str, str] = Field(default={})
    env_from: list[str] = Field(default=[])
    cwd: str | None = None
    headers_from: dict[str, str] = Field(default={})
    session: Literal["trajectory", "shared"] = "trajectory"
    connect_timeout_s: float = Field(default=10.0, gt=0)

    @property
    def key(self) -> str:
        """Key of the session, which is the same for all tools that share the session."""
        return self.model_dump_json(include=set(McpServer.model_fields))

    @property
    def label(self) -> str:
        """The server's name in error messages, without parts that may contain secrets."""
        if self.url is None:
            return " ".join(self.command[:2])
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

    def environment(self) -> dict[str, str]:
        """Return the child's environment variables beyond the SDK's defaults; raise `ConfigError` if one is not set."""
        return {**self.env, **{name: secret(name, key="env_from") for name in self.env_from}}

    def headers(self) -> dict[str, str]:
        """Return the headers of each request; raise `ConfigError` if an environment variable is not set."""
        return {name: secret(value, key=f"headers_from.{name}") for name, value in self.headers_from.items()}

    def redact(self, text: str) -> str:
        """Replace the secrets from the environment in `text`."""
        variables = (*self.env_from, *self.headers_from.values())
        words = [word for variable in variables for word in os.environ.get(variable, "").split()]
        return Secrets(word for word in words if len(word) >= _MIN_SECRET).hide(text)

    def model_post_init(self, _: object) -> None:
        """Check that the fields fit together and that all variables are set.

        Raises:
            ConfigError: a field is wrong; the error names key, value and remedy.
        """
        if bool(self.command) == (self.url is not None):
            problem = "both are" if self.command else "neither is"
            raise ConfigError(
                "command, url", f"{problem} set", "Write one: `command: [python, server.py]` or `url: http://...`"
            )
        for key in ("headers_from",) if self.url is None else ("env", "env_from", "cwd"):
            if value := getattr(self, key):
                raise ConfigError(key, f"this key has no effect on this server (value {value!r})", "Remove it")
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ConfigError(
                    "url", f"this is not an HTTP address (value {self.url!r})", "Write http://host:port/path"
                )
            if "@" in parts.netloc:
                raise ConfigError(
                    "url", "the URL contains a password", "Put it in an environment variable listed in headers_from"
                )
        self.environment(), self.headers()
