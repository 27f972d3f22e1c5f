"""What the probe reports and chooses, in processes with and without privileges."""

import asyncio
import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from agent_rl.sandbox import IsolationReport
from tests.sandbox.jail.programs import ALLOWED, FILES, PROCESSES
from tests.sandbox.tiers import DEVICES, SYSTEM, TIERS, confined, public_interpreter, reported

pytestmark = pytest.mark.slow

ALL = tuple(TIERS.values())


def probe(*candidates: list[str], program: str = "", **options: Any) -> tuple[IsolationReport, dict[str, Any]]:
    """The report, and that of a program which runs on the chosen tier."""

    async def main() -> tuple[IsolationReport, dict[str, Any]]:
        async with confined(*candidates, **options) as sandbox:
            assert sandbox.report is not None
            return sandbox.report, await reported(sandbox, program) if program else {}

    return asyncio.run(main())


@pytest.fixture
def landlock() -> None:
    """Skips where the kernel has none."""
    if ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 1:
        pytest.skip("the kernel has no landlock")


def test_the_probe_finds_the_best_tier(landlock: None) -> None:
    best = "uid" if os.geteuid() == 0 and public_interpreter() else "landlock"
    found, _ = probe(*ALL, public=best == "uid")
    assert set(found.layers) == set(TIERS[best])
    assert set(found.missing) == (set() if best == "uid" else {"uid"})
    assert len(found.acts) == 12
    allowed = {act for act, result in found.acts.items() if result == "ALLOWED"}
    assert allowed <= (set() if best == "uid" else {"become root again"})


def test_the_probe_finds_an_interpreter_that_the_uid_cannot_read(landlock: None, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not the root user")
    (tmp_path / "closed" / "package").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    found, _ = probe(*ALL, public=True, readable=[*SYSTEM, *DEVICES, str(tmp_path / "closed" / "package")])
    assert set(found.layers) == set(TIERS["landlock"])
    assert "PermissionError" in found.missing["uid"]
    assert "everybody can read" in found.missing["uid"]


def test_the_probe_sees_what_a_layer_does_not_stop() -> None:
    found, _ = probe(["seccomp"])
    assert (found.acts["read a file outside"], found.acts["connect to a server"]) == ("ALLOWED", "denied")


def test_without_privileges_the_uid_layer_is_missing_and_the_next_tier_holds(landlock: None) -> None:
    found, report = probe(*ALL, program=FILES + PROCESSES, nobody=True)
    assert set(found.layers) == set(TIERS["landlock"])
    assert found.missing["uid"].startswith("uid: the process has no right to change its user id")
    assert set(found.acts.values()) == {"denied"}
    assert {name for name, text in report.items() if text == "done"} == {"shell"}


def test_an_unprivileged_user_can_enter_the_namespace() -> None:
    found, _ = probe(TIERS["namespace"], nobody=True)
    if not found.isolated:
        pytest.skip(f"no user namespaces for ordinary users: {found.missing}")
    _, report = probe(TIERS["namespace"], program=FILES + ALLOWED, nobody=True)
    assert {name for name, text in report.items() if text == "done"} == {
        *("files", "numbers", "threads", "loop", "sockets", "times", "signals", "system"),
        *("root", "tmp", "processes"),  # empty but for the way to what is readable
    }
