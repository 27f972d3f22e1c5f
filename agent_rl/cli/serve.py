"""The command `agent-rl reward serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.errors import ConfigError

__all__ = ["serve"]


def serve(
    config: Annotated[Path, typer.Option(help="YAML file of the service, for example recipes/reward_api/service.yaml")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Its keys: port=9000, judge.format.weight=0, ...")
    ] = None,
) -> None:
    r"""Serve rewards over HTTP: POST /get_reward (rules) and /get_reward2 (judge), /health, /metrics, /docs.

    \b
      agent-rl reward serve --config recipes/reward_api/service.yaml
      agent-rl reward serve --config service.yaml port=9000 rules_file=my_rules.py

    It listens on 127.0.0.1 unless `host` says otherwise, which needs `token_env`. SIGTERM ends it when what runs has
    been answered.
    """
    from agent_rl.rewards.service.settings import read_settings

    settings = read_settings(config, overrides or [])
    try:
        from agent_rl.rewards.service import server
    except ModuleNotFoundError as error:
        remedy = "Install what the service needs: pip install 'agent-rl[service]'"
        raise ConfigError("agent-rl reward serve", f"there is no module {error.name!r}", remedy) from error
    server.serve(settings, lambda url: print(f"serving rewards at {url}", flush=True))
