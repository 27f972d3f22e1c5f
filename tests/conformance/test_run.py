"""Our gateway passes all checks over both of verl's clients; the command."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from agent_rl.conformance import OpenSession
from agent_rl.conformance.engine import Engine
from agent_rl.conformance.run import CHECKS, run_checks
from tests.conformance.drivers.ours import OurAsyncDriver, OurDriver
from tests.support.cli import printed

pytestmark = pytest.mark.trainer

OURS = f"{Path(__file__).parent}/drivers/ours.py"
PROTOCOL = [name for name, (group, *_) in CHECKS.items() if not group.needs_driver]
SLOW = ("many_sessions_run_at_once", "large_bodies_are_answered", "long_prompts_are_refused: answer")
"""What they check does not depend on the client of verl."""


@pytest.mark.parametrize("driver", [OurDriver, OurAsyncDriver])
def test_our_gateway_passes(driver: type[OurDriver]) -> None:
    names = [name for name in CHECKS if driver is OurAsyncDriver or name not in SLOW]
    problems = {each["check"]: each for each in asyncio.run(run_checks(driver(), names)) if each["status"] != "passes"}
    assert not problems


def test_the_command_prints_a_line_per_check() -> None:
    chosen = [f"--only={name}" for name in ("wrong_keys_are_refused: none", "equal_bodies_are_two_samples")]
    rows = printed("gateway", "check", "--driver", f"{OURS}:OurDriver", *chosen)
    assert [(row["check"], row["status"]) for row in rows] == [
        ("wrong_keys_are_refused: none", "passes"),
        ("equal_bodies_are_two_samples", "passes"),
    ]


async def test_an_address_gets_the_checks_of_the_protocol_only() -> None:
    """The engine's own server is a gateway without keys, and trains nothing."""

    engine = Engine()
    await engine.start()
    names = [
        "streams_have_openais_form: requested",
        "wrong_keys_are_refused: none",
        "messages_have_anthropics_form",
    ]
    results = await run_checks(OpenSession(engine.url, "key"), names)
    chosen = [f"--only={name}" for name in names[:1]]
    done = await asyncio.to_thread(CliRunner().invoke, app, ["gateway", "check", f"{engine.url}/v1", *chosen])
    await engine.stop()
    statuses, output = {each["check"]: each["status"] for each in results}, done.output
    assert list(statuses.values()) == ["passes", "fails", "missing"]
    assert f"{len(CHECKS) - len(PROTOCOL)} checks on the trained tokens did not run" in " ".join(output.split())


def test_what_is_typed_wrong_is_refused() -> None:
    def problem(*words: str) -> str:
        return str(CliRunner().invoke(app, ["gateway", "check", *words]).exception)

    assert "either a driver or an address" in problem()
    assert "there is no check 'wrong_key'" in problem("http://127.0.0.1:1", "--only", "wrong_key")
    assert "not a subclass of" in problem("--driver", f"{OURS}:Handle")
