"""What the probe reports and chooses, in processes with and without privileges."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.jail.confined import NOBODY, TIERS, can_become_nobody, command, output, place, public_interpreter
from tests.sandbox.jail.programs import ALLOWED, FILES, PROCESSES


def probe(base: Path, tier: str, candidates: list[list[str]], **options: Any) -> dict[str, Any]:
    return output(command(base, tier, probe=candidates), **options)


def kernel_has_landlock() -> bool:
    library = ctypes.CDLL(None)
    return bool(library.syscall(444, None, ctypes.c_size_t(0), 1) >= 1)


def test_the_probe_finds_the_best_tier() -> None:
    if not kernel_has_landlock():
        pytest.skip("the kernel has no landlock")
    best = "uid" if can_become_nobody() and public_interpreter() else "landlock"
    with place() as base:
        found = probe(base, best, list(TIERS.values()))
    assert found["plan"] == sorted(TIERS[best])
    assert set(found["missing"]) == (set() if best == "uid" else {"uid"})
    assert len(found["acts"]) == 16
    assert {act for act, result in found["acts"].items() if result == "ALLOWED"} <= (
        set() if best == "uid" else {"become root again"}
    )


def test_the_probe_finds_an_interpreter_that_the_uid_cannot_read() -> None:
    if not (can_become_nobody() and kernel_has_landlock()):
        pytest.skip("not the root user, or no landlock")
    interpreter = public_interpreter()
    if interpreter is None:
        pytest.skip("no interpreter here that every user can read")
    with place() as base:
        (base / "closed").mkdir(mode=0o700)
        package = base / "closed" / "package"
        package.mkdir()
        found = output(command(base, "uid", extra=[str(package)], probe=list(TIERS.values())))
    assert found["plan"] == sorted(TIERS["landlock"])
    assert "PermissionError" in found["missing"]["uid"]
    assert "everybody can read" in found["missing"]["uid"]


def test_the_probe_refuses_what_does_not_confine() -> None:
    with place() as base:
        found = probe(base, "landlock", [["seccomp"]])
    assert found["acts"]["read a file outside"] == "ALLOWED"
    assert found["acts"]["connect over TCP"] == "denied"


def test_without_privileges_the_uid_layer_is_missing_and_the_next_tier_holds() -> None:
    interpreter = public_interpreter()
    if interpreter is None:
        pytest.skip("no interpreter here that every user can read")
    if not (can_become_nobody() and kernel_has_landlock()):
        pytest.skip("not the root user, or no landlock")
    with place() as base:
        for path in (base, *base.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        found = output(command(base, "uid", probe=list(TIERS.values())), **options)
        ran = output([*command(base, "uid", FILES + PROCESSES, layers=TIERS["landlock"])], **options)
    assert found["plan"] == sorted(TIERS["landlock"])
    assert found["missing"]["uid"].startswith("uid: no right to change the user id")
    assert set(found["acts"].values()) == {"denied"}
    report = ran["report"]
    assert "error" not in report
    assert {name for name, text in report.items() if text == "done"} == {"shell"}


def test_an_unprivileged_user_can_enter_the_namespace() -> None:
    interpreter = public_interpreter()
    if interpreter is None or not can_become_nobody():
        pytest.skip("not the root user, or no interpreter here that every user can read")
    with place() as base:
        for path in (base, *base.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        options = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        found = output(command(base, "uid", probe=[TIERS["namespace"]]), **options)
        if found["plan"] is None:
            pytest.skip(f"no user namespaces for ordinary users: {found['missing']}")
        ran = output(command(base, "uid", FILES + ALLOWED, layers=TIERS["namespace"]), **options)
    assert {name for name, text in ran["report"].items() if text == "done"} == {
        *("files", "numbers", "threads", "loop", "sockets", "times", "signals", "system"),
        *("root", "tmp", "processes"),  # empty but for the way to what is readable
    }
