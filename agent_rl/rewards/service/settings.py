"""The service's configuration: a YAML file, with overrides such as `port=9000`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from agent_rl.errors import ConfigError
from agent_rl.settings import RewardSettings
from agent_rl.settings.errors import Place, validated
from agent_rl.settings.secrets import secret
from agent_rl.settings.section import Section
from agent_rl.settings.yaml_files import read_yaml

__all__ = ["ServiceSettings", "read_settings"]


class ServiceSettings(Section):
    """One service."""

    host: str = "127.0.0.1"
    """Address that it listens on; one that other machines reach needs `token_env`."""
    port: int = Field(default=8080, ge=0, le=65535)
    """0: a free port, which is printed."""
    token_env: str | None = None
    """Environment variable that holds the token which every request must carry (`Authorization: Bearer ...`)."""
    insecure: bool = False
    """Whether other machines may send requests without a token."""
    max_requests: int = Field(default=1024, ge=1)
    """Most open requests; a further one is answered by 503 with Retry-After."""
    max_concurrent: int = Field(default=256, ge=1)
    """Trajectories that each endpoint measures at the same time; further ones wait."""
    max_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """Bytes of a request's body."""
    timeout_s: float = Field(default=300.0, gt=0)
    """Seconds for one trajectory; after that it is unscored."""
    shutdown_s: int = Field(default=30, ge=1)
    """Seconds that running requests get to end when the service is stopped."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """The trajectories' limit on response tokens; only the overlong penalty needs it."""
    rules: RewardSettings | None = None
    """The reward of `POST /get_reward`: a section like `agent_rl.reward`."""
    rules_file: str | None = None
    """Python file with `compute_score(data_source, solution_str, ground_truth, extra_info=None)`: the correctness of
    `rules`. A relative path starts at the configuration's folder."""
    judge: RewardSettings | None = None
    """The reward of `POST /get_reward2`: a section like `agent_rl.reward`."""

    def reward(self, section: str) -> RewardSettings | None:
        """The reward of `rules` or `judge`; None: the service has none."""
        rules = RewardSettings() if self.rules is None and self.rules_file else self.rules
        return self.judge if section == "judge" else rules

    def token(self) -> str | None:
        """The token that requests must carry; None: none.

        Raises:
            ConfigError: the variable is not set, or other machines could ask without a token.
        """
        if self.token_env is not None:
            return secret(self.token_env, key="token_env")
        if not (self.insecure or _is_loopback(self.host)):
            problem = f"{self.host!r} is reached by other machines, and there is no token"
            raise ConfigError("host", problem, "Set token_env, or insecure: true where nobody else has access")
        return None


def read_settings(path: Path, overrides: Sequence[str] = ()) -> ServiceSettings:
    """Read a configuration; `${oc.env:NAME}` stands for an environment variable.

    Args:
        path: the YAML file.
        overrides: for example `port=9000` or `judge.format.weight=0`; they take precedence over the file.

    Raises:
        ConfigError: naming the key, the value and the remedy.
    """
    if not path.is_file():
        raise ConfigError("--config", f"there is no file {path}", "Name the service's YAML file")
    for word in overrides:
        if "=" not in word:
            raise ConfigError(word, "not a setting", "Write KEY=VALUE, for example port=9000")
    given, place = read_yaml(path, overrides), Place(file=path)
    if isinstance(given, dict) and given.get("rules_file"):
        given["rules_file"] = str(path.resolve().parent / str(given["rules_file"]))
    settings = validated(ServiceSettings, given, place)
    if not (settings.rules or settings.rules_file or settings.judge):
        raise ConfigError("rules", "the service has nothing to score with", "Write rules, rules_file or judge")
    return settings


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
