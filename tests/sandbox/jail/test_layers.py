"""What a confined program cannot and can do, against the real kernel, on each tier that this machine has."""

import asyncio
import contextlib
import errno
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.jail.programs import ALLOWED, FILES, LIMITS, PRIVILEGES, PROCESSES
from tests.sandbox.tiers import NOBODY, TIERS, on, reported
from tests.support.processes import children

pytestmark = pytest.mark.slow

FILES_UNREACHABLE = {errno.EPERM, errno.EACCES, errno.ENOENT, errno.EROFS, errno.EXDEV, errno.ENOTSUP}
EMPTY_IN_THE_NAMESPACE = ("root", "tmp", "processes")
"""Directories that exist there, with nothing in them but the way to what is readable."""
NUMPY = "import numpy\na = numpy.ones((200, 200))\nreport['x'] = float((a @ a).sum() + numpy.linalg.det(a[:1, :1]))"


def status_of_child(pid: int) -> dict[str, str]:
    """The /proc/PID/status of the only child of a process; empty where it has none."""
    for child in children(pid):
        with contextlib.suppress(FileNotFoundError):  # it has ended
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
            return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return {}


async def kernels_view(sandbox: Any) -> dict[str, str]:
    """What the kernel says about a confined program."""
    zygote = sandbox._pool.ready("lean").pid
    running = asyncio.ensure_future(sandbox.run("import time\ntime.sleep(0.5)"))
    status: dict[str, str] = {}
    while not running.done() and status.get("Seccomp") != "2":
        await asyncio.sleep(0.02)
        status = status_of_child(zygote)
    await running
    return status


@pytest.fixture(scope="module", params=list(TIERS))
def tier(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """The name of a tier, and what the programs report on it."""
    programs = {
        "files": FILES,
        "processes": PROCESSES,
        "privileges": PRIVILEGES,
        "other": "report['uid'] = os.getuid()",
        "allowed": ALLOWED,
    }

    async def main() -> dict[str, Any]:
        async with on(request.param, file_bytes=1 << 20) as sandbox:
            found: dict[str, Any] = {name: await reported(sandbox, text) for name, text in programs.items()}
            found["limits"] = await reported(sandbox, LIMITS, memory_mb=100)
            found["kernel"] = await kernels_view(sandbox)
            found["numpy"] = await reported(sandbox, NUMPY) if request.param != "uid" else None
            return found

    return request.param, asyncio.run(main())


def error_number(text: str) -> int:
    kind, _, number = text.partition(" ")
    assert kind.endswith("Error"), text
    assert number.isdigit(), text
    return int(number)


def test_files_outside_and_special_files_are_out_of_reach(tier: tuple[str, dict[str, Any]]) -> None:
    name, found = tier
    report = dict(found["files"])
    assert len(report) > 40
    if name == "namespace":
        assert {report.pop(name) for name in EMPTY_IN_THE_NAMESPACE} == {"done"}
    assert {name: text for name, text in report.items() if error_number(text) not in FILES_UNREACHABLE} == {}


@pytest.mark.parametrize("abi", [1, 2])
@pytest.mark.parametrize("name", ["uid", "landlock"])
async def test_early_versions_of_landlock_let_no_file_be_emptied(name: str, abi: int) -> None:
    """They do not know truncation, and an open with access mode 3 needs neither the right to read nor to write."""
    async with on(name, abi=abi) as sandbox:
        result = await reported(sandbox, "report['x'] = tried(os.open, outside + '/secret', 3 | os.O_TRUNC)")
    assert result == {"x": "PermissionError 1"}


def test_processes_and_the_network_are_out_of_reach(tier: tuple[str, dict[str, Any]]) -> None:
    report = dict(tier[1]["processes"])
    assert report.pop("shell") == "done"  # os.system returns its failure
    assert report.pop("splice") == "OSError 9"  # sendfile itself is let through
    assert report.pop("execute a descriptor").endswith("Error 1")
    for name in ("memory limit", "file limit", "open files", "cpu limit", "cores"):
        assert report.pop(name) == "ValueError: not allowed to raise maximum limit", name
    assert {name: text for name, text in report.items() if text != "PermissionError 1"} == {
        "type into a terminal": f"OSError {errno.ENOTTY}"
    }


def test_nothing_is_left_of_the_privileges(tier: tuple[str, dict[str, Any]]) -> None:
    name, found = tier
    report, kernel = dict(found["privileges"]), found["kernel"]
    ids, groups = report.pop("ids"), report.pop("groups")
    if name == "uid":
        assert len(set(ids[:3])) == len(set(ids[3:])) == 1
        assert ids[0] not in (0, os.getuid(), NOBODY, found["other"]["uid"])
        assert ids[3] not in (0, os.getgid(), NOBODY)
        assert groups == []
    assert report == {
        "dumpable": int(name != "uid"),
        "death signal": signal.SIGKILL,
        "no new privileges": 1,
        "seccomp": 2,
        "leader": True,
        "descriptors": [0, 1, 2],
    }
    assert {kernel[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16}
    assert kernel["CapBnd"] == "0" * 16 or os.geteuid() != 0
    assert kernel["Seccomp"] == "2"


def test_ordinary_programs_run(tier: tuple[str, dict[str, Any]]) -> None:
    assert set(tier[1]["allowed"].values()) == {"done"}, tier
    assert len(tier[1]["allowed"]) == 8
    assert tier[1]["numpy"] in (None, {"x": 8000001.0})


def test_limits_hold(tier: tuple[str, dict[str, Any]]) -> None:
    report = dict(tier[1]["limits"])
    threads = report.pop("threads")
    assert threads < 64 or tier[0] != "uid"  # where the kernel counts them; elsewhere the zygote looks
    assert report == {
        "small": 20 << 20,
        "big": "MemoryError: ",
        "long": f"OSError {errno.EFBIG}",
        "many": f"OSError {errno.EMFILE}",
        "seconds": [21, 21],  # the kernel's own limit, should the zygote not answer
    }
