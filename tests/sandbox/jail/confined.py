"""Running programs in children that the real kernel confines, on each tier that this machine has."""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import agent_rl

FOLDER = Path(agent_rl.__file__).parent / "sandbox" / "jail"
LAUNCHER = Path(__file__).parent / "launcher.py"
TIERS = {
    "uid": ["uid", "landlock", "seccomp"],
    "landlock": ["landlock", "seccomp"],
    "namespace": ["namespace", "seccomp"],
}
LIMITS = {"memory_bytes": 1 << 30, "file_bytes": 1 << 20, "max_open_files": 64, "cpu_s": 20.0}
NOBODY = 65534


def readable_by_all(path: str) -> bool:
    """Whether another user can reach `path`."""
    places = [Path(path), *Path(path).parents]
    return all(place.stat().st_mode & stat.S_IXOTH for place in places)


@functools.cache
def public_interpreter() -> str | None:
    """An interpreter of a supported version that every user can run: this one, or the system's."""
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        if os.path.exists(path) and readable_by_all(os.path.realpath(path)) and version_of(path) >= (3, 10):
            return path
    return None


def interpreter_version() -> tuple[int, ...]:
    """Of the public interpreter; empty without one."""
    path = public_interpreter()
    return version_of(path) if path else ()


def version_of(interpreter: str) -> tuple[int, ...]:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([interpreter, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    return tuple(map(int, done.stdout.split()))


@functools.cache
def can_become_nobody() -> bool:
    """Whether this process can start others as an ordinary user."""
    try:
        subprocess.run(["true"], user=NOBODY, group=NOBODY, extra_groups=[], check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


@contextmanager
def place() -> Iterator[Path]:
    """A directory that every user can pass through, with copies of the files under test, `outside` and `scratch`."""
    base = Path(tempfile.mkdtemp(prefix="confined-"))
    try:
        base.chmod(0o755)
        shutil.copytree(FOLDER, base / "files", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(LAUNCHER, base / "launcher.py")
        (base / "scratch").mkdir(mode=0o700)
        (base / "outside").mkdir(mode=0o755)
        (base / "outside" / "secret").write_text("secret")
        yield base
    finally:
        shutil.rmtree(base)


def command(base: Path, tier: str, program: str = "", *, extra: list[str] | None = None, **orders: Any) -> list[str]:
    """The command line that runs `program` on `tier`."""
    orders = {
        "folder": str(base / "files"),
        "layers": TIERS[tier],
        "extra": extra or [],
        "program": program,
        "scratch": str(base / "scratch"),
        "outside": str(base / "outside"),
        "limits": {**LIMITS, **orders.pop("limits", {})},
        "probe": None,
        **orders,
    }
    interpreter = public_interpreter() if tier == "uid" else os.path.realpath(sys.executable)
    if interpreter is None:
        pytest.skip("no interpreter here that every user can read")
    return [interpreter, "-I", "-S", str(base / "launcher.py"), json.dumps(orders)]


def output(arguments: list[str], **options: Any) -> dict[str, Any]:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@functools.cache
def missing(tier: str) -> str | None:
    """Why this machine lacks `tier`, or None."""
    with place() as base:
        found = output(command(base, tier, probe=[TIERS[tier]]))
    return None if found["plan"] else str(found["missing"])


def run(tier: str, program: str, *, extra: list[str] | None = None, **orders: Any) -> dict[str, Any]:
    """Run `program` confined; it fills `report`. Skips where the machine lacks the tier.

    Returns:
        report, status (as from waitpid), kernel (the child's /proc/PID/status), pid.
    """
    if reason := missing(tier):
        pytest.skip(f"no {tier} tier here: {reason}")
    with place() as base:
        result = output(command(base, tier, program, extra=extra, **orders))
        assert os.listdir(base / "outside") == ["secret"]
        assert (base / "outside" / "secret").read_text() == "secret"
    assert "error" not in result["report"], result["report"]["error"]
    return result
