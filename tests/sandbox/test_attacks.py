"""Hostile programs against the real sandbox: none gets what it wants, none outlives its limit, none is missed.

Every program runs as an execution and in a session, many at a time. What an attack would reach without a sandbox is
shown by running it without one.
"""

import asyncio
import os
import secrets
from pathlib import Path

import pytest

from agent_rl.sandbox import PythonSandbox
from tests.sandbox.attacks import ATTACKS, Attack
from tests.sandbox.world import World, run_unconfined

pytestmark = pytest.mark.slow

GRACE_S = 2.0
SHOWN = (
    "write to a foreign file",
    "delete a foreign file",
    "change a mode",
    "kill a foreign process",
    "connect over TCP",
)


@pytest.fixture(scope="module")
def token():
    token = secrets.token_hex(12)
    os.environ["AGENT_RL_TEST_API_KEY"] = f"key-{token}-end"
    yield token
    del os.environ["AGENT_RL_TEST_API_KEY"]


@pytest.fixture(scope="module")
def world(tmp_path_factory, token):
    with World(tmp_path_factory.mktemp("outside"), token) as world:
        yield world


@pytest.fixture(scope="module")
def outcomes(world):
    """The executions of all attacks by (form, name), and of an honest program after them."""

    async def in_session(sandbox, code, attack):
        async with sandbox.session(timeout_s=attack.timeout_s) as session:
            await session.run("kept = 1")
            first = await session.run(code)
            return first, await session.run("print(6 * 7)")

    async def main():
        async with PythonSandbox(max_concurrency=16) as sandbox:
            decoy = asyncio.ensure_future(
                sandbox.run(f"x = '{world.token}'\nimport time\ntime.sleep(20)", timeout_s=20)
            )
            filled = [(attack, world.fill_in(attack.code)) for attack in ATTACKS]
            runs = await asyncio.gather(*(sandbox.run(code, timeout_s=attack.timeout_s) for attack, code in filled))
            cells = await asyncio.gather(*(in_session(sandbox, code, attack) for attack, code in filled))
            decoy.cancel()
            honest = await sandbox.run("print(6 * 7)")
        names = [attack.name for attack in ATTACKS]
        return (
            {("run", name): run for name, run in zip(names, runs, strict=True)}
            | {("session", name): cell for name, cell in zip(names, cells, strict=True)}
            | {("after", "all"): honest}
        )

    return asyncio.run(main())


def by_name(attack):
    return attack.name


@pytest.mark.parametrize("attack", ATTACKS, ids=by_name)
def test_a_program_does_not_get_what_it_wants(outcomes, attack: Attack):
    execution = outcomes["run", attack.name]
    assert "BREACH" not in execution.stdout, execution  # a traceback shows the program's own lines
    assert execution.status.value in attack.statuses, execution
    assert execution.own_s < attack.timeout_s + GRACE_S


@pytest.mark.parametrize("attack", ATTACKS, ids=by_name)
def test_a_cell_of_a_session_does_not_get_what_it_wants(outcomes, attack: Attack):
    execution, after = outcomes["session", attack.name]
    assert "BREACH" not in execution.stdout, execution  # a traceback shows the program's own lines
    assert execution.status.value in attack.in_session, execution
    assert execution.own_s < attack.timeout_s + GRACE_S
    assert "BREACH" not in after.stdout
    assert after.status.value in ("ok", "error", "killed", "timeout"), after  # it may have spoiled its own session


def test_attacks_change_nothing_outside_the_sandbox(outcomes, world):
    assert world.changes() == []


def test_the_sandbox_works_after_all_that(outcomes):
    honest = outcomes["after", "all"]
    assert (honest.status, honest.stdout, honest.stderr) == ("ok", "42\n", "")


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.control], ids=by_name)
def test_every_attack_succeeds_without_the_sandbox(tmp_path: Path, token, attack: Attack):
    """Otherwise the program is wrong, and that it fails in the sandbox proves nothing."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    with World(tmp_path / "outside", token) as world:
        assert world.changes() == []
        assert "BREACH" in run_unconfined(world.fill_in(attack.code), tmp_path / "inside")
        assert attack.name not in SHOWN or world.changes() != []
