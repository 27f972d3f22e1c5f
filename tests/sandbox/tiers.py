"""The real sandbox on each tier of isolation that this machine has, also on those that it does not choose by itself."""

import dataclasses
import filecmp
import functools
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_rl.sandbox import PythonSandbox
from agent_rl.sandbox.host import supervisor

TIERS = {
    "uid": ["uid", "landlock", "seccomp"],
    "landlock": ["landlock", "seccomp"],
    "namespace": ["namespace", "seccomp"],
}
NOBODY = 65534
SYSTEM = ["/usr/lib", "/lib", "/lib64", "/usr/local/lib", "/usr/share/zoneinfo"]
DEVICES = ["/dev/null", "/dev/zero", "/dev/urandom"]


def boot(*lines: str) -> tuple[str, ...]:
    """The command that starts a zygote, which first runs these lines."""
    code = supervisor._BOOT.replace("main(int", "\n".join([*lines, "main(int"]))
    return tuple(code if part == supervisor._BOOT else part for part in supervisor._COMMAND)


WITHOUT_ISOLATION = boot(
    "from agent_rl_sandbox import zygote",
    "from agent_rl_sandbox.probe import ProbeReport",
    "zygote.probe = lambda *_: ProbeReport(None, {'seccomp': 'no kernel'}, {})",
)
"""The command of a zygote for which no layer holds."""
REPORT = """
import json, os
report, scratch, outside = {{}}, os.getcwd(), {outside!r}
def tried(act, *arguments):
    try: act(*arguments)
    except OSError as error: return f"{{type(error).__name__}} {{error.errno}}"
    except BaseException as error: return f"{{type(error).__name__}}: {{error}}"
    return "done"
{program}
print(json.dumps(report))
"""


@functools.cache
def public_interpreter() -> str:
    """An interpreter of a supported version that every user can run: this one, or the system's; empty without one."""
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        places = [Path(path).resolve(), *Path(path).resolve().parents]
        if os.path.exists(path) and all(place.stat().st_mode & stat.S_IXOTH for place in places):
            code = "import sys; assert sys.version_info >= (3, 10)"
            if subprocess.run([path, "-I", "-S", "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return path
    return ""


@asynccontextmanager
async def confined(
    *candidates: Sequence[str], public: bool = False, nobody: bool = False, abi: int = 0, **settings: Any
) -> AsyncIterator[PythonSandbox]:
    """A sandbox that has been probed, with the first of the candidates that holds; its report says which.

    Beside the programs' directories is a directory `outside`, which nothing may change.

    Args:
        candidates: sets of layers.
        public: in an interpreter that every user can run, without packages.
        nobody: as an ordinary user, in such an interpreter.
        abi: of Landlock, when older than the kernel's.
        settings: fields of `ZygoteSettings` with other values.
    """
    lines = ["from agent_rl_sandbox import landlock, probe, zygote"]
    lines += [f"zygote.probe = lambda readable: probe.probe(readable, {[frozenset(each) for each in candidates]})"]
    if abi:
        lines += ["newest, version = landlock.call, ('landlock_create_ruleset', 0, 0, 1)"]
        lines += [f"landlock.call = lambda *order: {abi} if order == version else newest(*order)"]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="tier-") as base:
        command = list(boot(*lines))
        os.chmod(base, 0o755)
        for name in ("scratch", "outside"):
            os.mkdir(f"{base}/{name}", 0o755)
        secret = f"{base}/outside/secret"
        shutil.copy(__file__, secret)
        if public or nobody:
            if not public_interpreter():
                pytest.skip("no interpreter here that every user can read")
            command[0] = public_interpreter()
            command[-1] = shutil.copytree(command[-1], f"{base}/jail", ignore=shutil.ignore_patterns("__pycache__"))
            settings = {"package_files": {}, "readable": [*SYSTEM, *DEVICES], **settings}
        if nobody:
            if os.geteuid() != 0 or not shutil.which("setpriv"):
                pytest.skip("not the root user, or no setpriv")
            os.chown(f"{base}/scratch", NOBODY, NOBODY)
            command[:0] = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        patch.setattr(supervisor, "_COMMAND", tuple(command))
        packages = () if public or nobody else ("numpy",)
        sandbox = PythonSandbox(max_concurrency=8, packages=packages, scratch_dir=f"{base}/scratch")
        sandbox._settings = dataclasses.replace(sandbox._settings, **settings)
        async with sandbox:
            await sandbox.probe()
            yield sandbox
        assert os.listdir(f"{base}/scratch") == []
        assert os.listdir(f"{base}/outside") == ["secret"]
        assert filecmp.cmp(secret, __file__, shallow=False)


@asynccontextmanager
async def on(tier: str, **options: Any) -> AsyncIterator[PythonSandbox]:
    """A sandbox on a tier; skips where this machine lacks it."""
    async with confined(TIERS[tier], **{"public": tier == "uid", **options}) as sandbox:
        report = sandbox.report
        assert report is not None
        if not report.isolated:
            pytest.skip(f"no {tier} tier here: {report.missing}")
        yield sandbox


async def reported(sandbox: PythonSandbox, program: str, **options: Any) -> dict[str, Any]:
    """What a program has put into `report`; it may use `tried`, `scratch` and `outside`."""
    outside = f"{os.path.dirname(sandbox._settings.scratch_parent)}/outside"
    code = REPORT.format(outside=outside, program=program)
    execution = await sandbox.run(code, **{"timeout_s": 20, "memory_mb": 1024, **options})
    assert execution.status == "ok", execution
    report: dict[str, Any] = json.loads(execution.stdout)
    return report
