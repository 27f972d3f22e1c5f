"""The filter program, run by a small interpreter of classic BPF, so that both architectures are tested on either."""

import functools
import re
import struct
from pathlib import Path

import pytest

from agent_rl.sandbox.jail import seccomp
from agent_rl.sandbox.jail.syscalls import AUDIT_ARCHES, UNRESTRICTED, numbers_of

ALLOW, KILL, EPERM, ENOSYS, ENOTTY = 0x7FFF0000, 0x80000000, 0x50001, 0x50026, 0x50019
OWN = seccomp._OWN_PID

both = pytest.mark.parametrize("machine", list(AUDIT_ARCHES))


@functools.cache
def filter_code(machine: str) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", seccomp.program(machine)))


def verdict(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """What the filter returns for a system call."""
    code = filter_code(machine)
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, AUDIT_ARCHES[machine] if arch is None else arch, 0, *padded)
    accumulator, position = 0, 0
    while True:
        operation, if_true, if_false, constant = code[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, constant)[0]
        elif operation == 0x54:
            accumulator &= constant
        elif operation == 0x05:
            position += constant
        elif operation == 0x06:
            return int(constant)
        else:
            taken = {0x15: accumulator == constant, 0x35: accumulator >= constant, 0x45: accumulator & constant}[
                operation
            ]
            position += if_true if taken else if_false


@both
def test_listed_calls_pass_and_all_others_are_refused(machine: str) -> None:
    numbers = numbers_of(machine)
    checked = set(seccomp._conditional_calls()) | set(seccomp._ABSENT)
    by_number = {number: name for name, number in numbers.items()}
    for number in range(600):
        name = by_number.get(number)
        if name in checked:
            continue
        allowed = name in UNRESTRICTED
        assert verdict(machine, number) == (ALLOW if allowed else EPERM if number <= 462 else ENOSYS), (number, name)


@both
def test_another_architecture_kills(machine: str) -> None:
    read = numbers_of(machine)["read"]
    for arch in {*AUDIT_ARCHES.values(), 0x40000003, 0x40000028, 0} - {AUDIT_ARCHES[machine]}:
        assert verdict(machine, read, arch=arch) == KILL


def test_x32_kills_and_strange_numbers_do_not_exist() -> None:
    assert {verdict("x86_64", number) for number in (0x40000000, 0x40000001, 0xFFFFFFFF)} == {KILL}
    assert {verdict("aarch64", number) for number in (463, 0x40000000, 0xFFFFFFFF)} == {ENOSYS}


HIGH = 1 << 32
CASES = [
    ("clone", (0x3D0F00,), ALLOW),
    ("clone", (0x7D0F00,), ALLOW),
    ("clone", (17,), EPERM),
    ("clone", (0x3D0F00 | 0x10000000,), EPERM),
    ("clone", (0x3C0F00,), EPERM),
    ("clone3", (), ENOSYS),
    ("openat2", (), ENOSYS),
    ("openat", (0, 0, 0o100 | 0o1000 | 1), ALLOW),
    ("openat", (0, 0, 0o1000 | 2), ALLOW),
    ("openat", (0, 0, 0), ALLOW),
    ("openat", (0, 0, 0o1000), EPERM),
    ("openat", (0, 0, 3), EPERM),
    ("openat", (0, 0, 0o1000 | 3), EPERM),
    ("openat", (0, 0, 0o1000 | 1), ALLOW),
    ("openat", (0, 0, 0o20000000 | 2), EPERM),
    ("fcntl", (0, 3), ALLOW),
    ("fcntl", (0, 1030), ALLOW),
    ("fcntl", (0, 8), EPERM),
    ("fcntl", (0, 15), EPERM),
    ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, HIGH | 0x5401), ALLOW),
    ("ioctl", (0, 0x5412), ENOTTY),
    ("prctl", (15,), ALLOW),
    ("prctl", (4,), EPERM),
    ("prctl", (1,), EPERM),
    ("kill", (OWN,), ALLOW),
    ("kill", (1,), EPERM),
    ("kill", (0,), EPERM),
    ("kill", (0xFFFFFFFF,), EPERM),
    ("tgkill", (OWN, 5), ALLOW),
    ("tgkill", (5, OWN), EPERM),
    ("prlimit64", (0,), ALLOW),
    ("prlimit64", (OWN,), ALLOW),
    ("prlimit64", (1,), EPERM),
    ("sendto", (0, 0, 0, 0, 0), ALLOW),
    ("sendto", (0, 0, 0, 0, 1), EPERM),
    ("sendto", (0, 0, 0, 0, HIGH), EPERM),
    ("socketpair", (1, 1), ALLOW),
    ("socketpair", (1, 0o2000000 | 0o4000 | 1), ALLOW),
    ("socketpair", (1, 2), EPERM),
    ("socketpair", (1, 5), EPERM),
    ("socketpair", (2, 1), EPERM),
]


@both
@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_arguments_are_checked(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    assert verdict(machine, numbers_of(machine)[name], *arguments) == expected


def test_the_legacy_open_is_checked_like_openat() -> None:
    number = numbers_of("x86_64")["open"]
    assert [verdict("x86_64", number, 0, flags) for flags in (0, 0o1000, 0o1001, 0o1003)] == [
        ALLOW,
        EPERM,
        ALLOW,
        EPERM,
    ]


@pytest.mark.parametrize(
    ("machine", "header", "pattern"),
    [
        ("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", r"#define __NR_(\w+)\s+(\d+)"),
        ("aarch64", "/usr/include/asm-generic/unistd.h", r"#define __NR(?:3264)?_(\w+)\s+(\d+)"),
    ],
)
def test_the_numbers_are_the_kernel_headers(machine: str, header: str, pattern: str) -> None:
    if not Path(header).exists():
        pytest.skip("no kernel headers here")
    official = {name: int(number) for name, number in re.findall(pattern, Path(header).read_text())}
    official.setdefault("newfstatat", official.get("fstatat", -1))
    numbers = numbers_of(machine)
    assert {name: number for name, number in numbers.items() if official.get(name) != number} == {}
    assert set(UNRESTRICTED) - set(numbers_of("x86_64")) == set()
