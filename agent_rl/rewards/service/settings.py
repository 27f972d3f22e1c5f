"""The configuration of the reward service: a YAML file, with overrides such as `port=9000`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from agent_rl.errors import ConfigError
from agent_rl.settings import RewardSettings
from agent_rl.settings.errors import Place, Section, read_yaml, validated
from agent_rl.settings.secrets import secret


class ServiceSettings(Section):
    """The settings of one reward service."""

    host: str = "127.0.0.1"
    """Address to listen on. An address that other machines can reach requires `token_env` or `insecure`."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port to listen on; if 0, a free port is chosen and printed."""
    token_env: str | None = None
    """Environment variable that contains the token that every request must send (`Authorization: Bearer ...`)."""
    insecure: bool = False
    """Whether to allow other machines to send requests without a token."""
    max_requests: int = Field(default=1024, ge=1)
    """Maximum number of open requests; additional requests are answered with status 503 and Retry-After."""
    max_concurrent: int = Field(default=256, ge=1)
    """Maximum number of trajectories that each endpoint scores at the same time; additional trajectories wait."""
    max_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """Maximum size of a request's body in bytes."""
    timeout_s: float = Field(default=300.0, gt=0)
    """Time limit for scoring one trajectory, in seconds; a trajectory that takes longer is unscored."""
    shutdown_s: int = Field(default=30, ge=1)
    """Seconds that the service waits for open requests when it is stopped."""
    max_response_tokens: int | None = Field(default=None, ge=1)
    """The limit on response tokens during sampling; only the overlong penalty needs it."""
    rules: RewardSettings | None = None
    """The reward of `POST /get_reward`: a section like `agent_rl.reward`."""
    rules_file: str | None = None
    """Python file with `compute_score(data_source, solution_str, ground_truth, extra_info=None)`, which measures the
    correctness for `rules`. A relative path is resolved from the folder of the configuration file."""
    judge: RewardSettings | None = None
    """The reward of `POST /get_reward2`: a section like `agent_rl.reward`."""

    def reward(self, section: str) -> RewardSettings | None:
        """Return the reward settings of `rules` or `judge`, or None if that section is not set."""
        rules = RewardSettings() if self.rules is None and self.rules_file else self.rules
        return self.judge if section == "judge" else rules

    def token(self) -> str | None:
        """Return the token that requests must send, or None if requests need no token.

        Raises:
            ConfigError: the token's variable is not set, or other machines could send requests without a token.
        """
        if self.token_env is not None:
            return secret(self.token_env, key="token_env")
        if not (self.insecure or _is_loopback(self.host)):
            problem = f"other machines can reach {self.host!r}, but no token is set"
            raise ConfigError("host", problem, "Set token_env, or insecure: true if the network is private")
        return None


def read_settings(path: Path, overrides: Sequence[str] = ()) -> ServiceSettings:
    """Read the configuration of a service. In the file, `${oc.env:NAME}` stands for an environment variable.

    Args:
        path: the YAML file.
        overrides: settings that override the file, for example `port=9000` or `judge.format.weight=0`.

    Raises:
        ConfigError: the configuration is invalid; the message names the key, the value and the remedy.
    """
    if not path.is_file():
        raise ConfigError("--config", f"there is no file {path}", "Pass the path of the service's YAML file")
    for override in overrides:
        if "=" not in override:
            raise ConfigError(override, "an override needs a value", "Write KEY=VALUE, for example port=9000")
    data, place = read_yaml(path, overrides), Place(file=path)
    if isinstance(data, dict) and data.get("rules_file"):
        data["rules_file"] = str(path.resolve().parent / str(data["rules_file"]))
    settings = validated(ServiceSettings, data, place)
    if not (settings.rules or settings.rules_file or settings.judge):
        raise ConfigError("rules", "the service has no reward", "Set rules, rules_file or judge")
    return settings


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
