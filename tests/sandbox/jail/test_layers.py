"""What a confined child cannot and can do, against the real kernel, on each tier that this machine has."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from tests.sandbox.jail import confined
from tests.sandbox.jail.confined import NOBODY, TIERS, command, interpreter_version, output, place, readable_by_all, run
from tests.sandbox.jail.programs import ALLOWED, CALLS, FILES, PROCESSES, RAW_CALLS

pytestmark = pytest.mark.slow

FILES_UNREACHABLE = {errno.EPERM, errno.EACCES, errno.ENOENT, errno.EROFS, errno.EXDEV, errno.ENOTSUP}
EMPTY_IN_THE_NAMESPACE = ("root", "tmp", "processes")
"""Directories that exist there, with nothing in them but the way to what is readable."""

tiers = pytest.mark.parametrize("tier", list(TIERS))


def error_number(text: str) -> int:
    kind, _, number = text.partition(" ")
    assert kind.endswith("Error"), text
    assert number.isdigit(), text
    return int(number)


@tiers
def test_files_outside_and_special_files_are_out_of_reach(tier: str) -> None:
    report = run(tier, FILES)["report"]
    assert len(report) > 40
    if tier == "namespace":
        assert {report.pop(name) for name in EMPTY_IN_THE_NAMESPACE} == {"done"}
    assert {name: text for name, text in report.items() if error_number(text) not in FILES_UNREACHABLE} == {}


@pytest.mark.parametrize("abi", [1, 2])
@pytest.mark.parametrize("tier", ["uid", "landlock"])
def test_early_versions_of_landlock_let_no_file_be_emptied(tier: str, abi: int) -> None:
    """They do not know truncation, and an open with access mode 3 needs neither the right to read nor to write."""
    program = "import os\nreport['empty'] = tried(os.open, outside + '/secret', 3 | os.O_TRUNC)"
    assert run(tier, program, abi=abi)["report"] == {"empty": "PermissionError 1"}


@tiers
def test_processes_and_the_network_are_out_of_reach(tier: str) -> None:
    report = run(tier, PROCESSES)["report"]
    late = {"memory limit", "file limit", "open files", "cpu limit", "cores"}
    assert report.pop("shell") == "done"  # os.system returns its failure
    assert report.pop("splice") == "OSError 9"  # sendfile itself is let through
    assert report.pop("execute a descriptor").endswith("Error 1")
    for name in late:
        assert report.pop(name) == "ValueError: not allowed to raise maximum limit", name
    assert {name: text for name, text in report.items() if text != "PermissionError 1"} == {
        "type into a terminal": f"OSError {errno.ENOTTY}"
    }


@tiers
def test_system_calls_that_are_not_listed_are_refused_by_number(tier: str) -> None:
    column = 0 if os.uname().machine == "x86_64" else 1
    calls = [(name, entry[column], entry[2]) for name, entry in CALLS.items()]
    report = run(tier, f"calls = {calls!r}\n{RAW_CALLS}")["report"]
    absent = {"clone3", "openat2", "a call of the future"}
    expected = {name: errno.ENOSYS if name in absent else errno.EPERM for name in CALLS} | {"ioctl": errno.ENOTTY}
    assert report == expected


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 and i386 are of x86-64")
@pytest.mark.parametrize(
    "program",
    [
        "import ctypes; ctypes.CDLL(None).syscall(0x40000000 | 39)",
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(bytes([0xB8, 20, 0, 0, 0, 0xCD, 0x80, 0xC3]))\n"  # mov eax, getpid; int 0x80; ret
        "ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()",
    ],
    ids=["x32", "i386"],
)
def test_another_abi_kills(program: str) -> None:
    status = run("landlock", program)["status"]
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) in (signal.SIGSYS, signal.SIGSEGV)  # SEGV: a kernel without that ABI


@tiers
def test_nothing_is_left_of_the_privileges(tier: str) -> None:
    program = """
import ctypes, os
prctl = ctypes.CDLL(None).prctl
report["ids"] = [*os.getresuid(), *os.getresgid()]
report["groups"] = os.getgroups()
report["dumpable"], report["death signal"] = prctl(3), ctypes.c_int()
prctl(2, ctypes.byref(report["death signal"]))
report["death signal"] = report["death signal"].value
report["no new privileges"], report["seccomp"] = prctl(39, 0, 0, 0, 0), prctl(21)
report["leader"] = os.getsid(0) == os.getpid()
report["descriptors"] = []
for number in range(64):
    try:
        os.fstat(number)
    except OSError:
        continue
    report["descriptors"].append(number)
"""
    result = run(tier, program)
    report, kernel = result["report"], result["kernel"]
    assert (
        len(report.pop("descriptors")) == 5
    )  # standard streams and the test's two pipes: none of the confinement's own
    ids, groups = report.pop("ids"), report.pop("groups")
    if tier == "uid":
        assert len(set(ids[:3])) == len(set(ids[3:])) == 1
        assert ids[0] not in (0, os.getuid(), NOBODY)
        assert ids[3] not in (0, os.getgid(), NOBODY)
        assert groups == []
    assert report == {
        "dumpable": int(tier != "uid"),
        "death signal": signal.SIGKILL,
        "no new privileges": 1,
        "seccomp": 2,
        "leader": True,
    }
    if kernel:
        assert {kernel[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Amb")} == {"0" * 16}
        assert kernel["CapBnd"] == "0" * 16 or os.geteuid() != 0
        assert kernel["Seccomp"] == "2"


def test_two_children_have_different_uids() -> None:
    first, second = (run("uid", "import os; report['uid'] = os.getuid()")["report"]["uid"] for _ in range(2))
    assert first != second


@tiers
def test_ordinary_programs_run(tier: str) -> None:
    report = run(tier, ALLOWED)["report"]
    assert len(report) == 8
    assert set(report.values()) == {"done"}, report


NUMERIC = {
    "numpy": (
        "import numpy\na = numpy.ones((200, 200))\nreport['x'] = float((a @ a).sum() + numpy.linalg.det(a[:1, :1]))",
        8000001.0,
    ),
    "sympy": ("import sympy\nreport['x'] = str(sympy.factor(sympy.Symbol('x') ** 2 - 1))", "(x - 1)*(x + 1)"),
}


@tiers
@pytest.mark.parametrize("package", list(NUMERIC))
def test_numeric_packages_import_in_the_child(tier: str, package: str) -> None:
    site = os.path.dirname(os.path.dirname(pytest.importorskip(package).__file__))
    if tier == "uid" and not (interpreter_version() == sys.version_info[:2] and readable_by_all(site)):
        pytest.skip("no interpreter here for which every user can read these packages")
    program, expected = NUMERIC[package]
    assert run(tier, program, extra=[site])["report"]["x"] == expected


@tiers
def test_limits_hold(tier: str) -> None:
    program = """
import os
def big(): return bytearray(200 << 20)
def long():
    with open(scratch + "/long", "wb", buffering=0) as file:
        for _ in range(5): file.write(bytes(1 << 16))
def many():
    files = [os.dup(0) for _ in range(100)]
report["small"] = len(bytearray(20 << 20))
report |= {act.__name__: tried(act) for act in (big, long, many)}
"""
    limits = {"memory_bytes": 100 << 20, "file_bytes": 1 << 17, "max_open_files": 20}
    assert run(tier, program, limits=limits)["report"] == {
        "small": 20 << 20,
        "big": "MemoryError: ",
        "long": f"OSError {errno.EFBIG}",
        "many": f"OSError {errno.EMFILE}",
    }


def test_the_kernel_ends_an_endless_loop() -> None:
    status = run("landlock", "while True: pass", limits={"cpu_s": 0.0})["status"]
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_threads_are_bounded_where_the_child_has_its_own_uid() -> None:
    program = """
import threading
event, started = threading.Event(), []
def start():
    for _ in range(200):
        thread = threading.Thread(target=event.wait, daemon=True)
        thread.start()
        started.append(thread)
report["start"] = tried(start)
report["started"] = len(started)
event.set()
"""
    report = run("uid", program, limits={"memory_bytes": 8 << 30})["report"]
    assert report["start"].startswith("RuntimeError")
    assert 32 < report["started"] < 64


def test_children_die_with_their_parent() -> None:
    if reason := confined.missing("landlock"):
        pytest.skip(f"no landlock tier here: {reason}")
    program = "import os, time\nos.write(1, b'ready')\ntime.sleep(60)"
    with place() as base:
        with subprocess.Popen(command(base, "landlock", program), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.read(5) == b"ready"
            process.kill()
            assert process.stdout.read() == b""  # the child held the other end


def test_a_missing_scratch_directory_names_the_layer() -> None:
    if reason := confined.missing("landlock"):
        pytest.skip(f"no landlock tier here: {reason}")
    with place() as base:
        result = output(command(base, "landlock", scratch=str(base / "none")))
    assert "[Errno 2] landlock: No such file or directory" in result["report"]["error"]
