"""The `agent-rl gateway` command."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result
from agent_rl.errors import ConfigError, did_you_mean

app = typer.Typer(rich_help_panel="check", help="Check a gateway between agents and the policy.", no_args_is_help=True)


@app.command()
def check(
    url: Annotated[str, typer.Argument(help="Address of a running gateway; only its protocol is checked")] = "",
    driver: Annotated[str, typer.Option(help="Gateway to start: file.py:Class, a subclass of Driver")] = "",
    key: Annotated[str, typer.Option(help="Key of a session that is open on the gateway at URL")] = "",
    only: Annotated[list[str] | None, typer.Option(help="Name of a check to run; may be repeated")] = None,
    as_json: Json = False,
) -> None:
    r"""Check a gateway's answers, and whether training uses exactly the sampled tokens.

    \b
      agent-rl gateway check --driver my_gateway.py:MyDriver
      agent-rl gateway check http://127.0.0.1:8000/v1 --key KEY

    A driver connects a gateway to a scripted engine, so no model is needed. Exit code 1: at least one check does not
    pass.

    --json: a list with `check`, `holds` (what must hold), `status` and `problem`. The status `missing` means that the
    gateway or its driver lacks a feature that the check needs.
    """
    from rich.markup import escape
    from rich.table import Table

    from agent_rl.conformance import Driver, OpenSession
    from agent_rl.conformance.run import CHECKS, run_checks
    from agent_rl.settings.errors import Place
    from agent_rl.settings.importing import find_class

    if bool(driver) == bool(url):
        raise ConfigError("--driver", "pass either a driver or an address", "See agent-rl gateway check --help")
    address = OpenSession(url.rstrip("/").removesuffix("/v1"), key)
    gateway: Driver | OpenSession = find_class(driver, Driver, Place("--driver"))() if driver else address
    known = [name for name, (group, *_) in CHECKS.items() if driver or not group.needs_driver]
    for name in set(only or ()) - set(known):
        raise ConfigError("--only", f"there is no check {name!r}", did_you_mean(name, known))
    results = asyncio.run(run_checks(gateway, only or known))
    table = Table("status", "check", "problem")
    for result in results:
        table.add_row(result["status"], result["check"], escape(result["problem"]))
    counts = Counter(result["status"] for result in results)
    end = ", ".join(f"{number} {status}" for status, number in counts.items())
    if url:
        end += f". {len(CHECKS) - len(known)} checks on the trained tokens did not run: they need --driver"
    print_result(results, as_json, table, end)
    raise typer.Exit(int(counts["passes"] < len(results)))
