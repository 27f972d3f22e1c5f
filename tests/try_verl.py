"""Tries another release of verl: `make test VERL=0.10.0`, or a path to its source.

The release is installed, without what it requires, into an environment of its own that borrows everything else from
`.venv`. Three tables say which requirements are not met there, which imports of ours it lacks, and of each patch
whether it applies, works and is still needed. The exit status is 1 when something differs.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

from agent_rl.cpu.switch import stand_ins

ROOT = Path(__file__).parents[1]
FOLDERS = ("agent_rl/verl_adapter", "agent_rl/cpu")
"""All that imports verl."""
TESTS = (
    "tests/cpu/test_patches.py",
    "tests/cpu/test_speed.py",
    "tests/verl_adapter/test_failures.py",
    "tests/verl_adapter/test_last_step.py",
    "tests/verl_adapter/test_one_update.py",
    "tests/verl_adapter/test_ordering.py",
    "tests/verl_adapter/test_patches.py",
    "tests/verl_adapter/test_replay_buffer.py",
    "tests/verl_adapter/test_reward_loop.py",
    "tests/verl_adapter/test_rollout.py",
    "tests/verl_adapter/test_sampled_scores.py",
    "tests/verl_adapter/test_served_models.py",
    "tests/verl_adapter/test_trained_samples.py",
    "tests/verl_adapter/test_stages.py",
)
NEED = re.compile(r"needed|would|still")
"""Names of tests that pass while verl does not do the thing itself."""
GUARD = """
import site, wrapt
@wrapt.when_imported("agent_rl.verl_adapter.patches")
def accept(module):
    from importlib.metadata import version
    module.VERL_VERSION = version("verl")
"""
"""The environment's `sitecustomize`: patches are tried on this release, which they refuse elsewhere."""


def install(release: str) -> Path:
    """An environment with this verl in front of everything that `.venv` has; its Python."""
    name = re.sub(r"[^\w.]+", "-", Path(release).name)
    folder = ROOT / f".venv-verl-{name}"
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python3*/site-packages"))
    borrowed = sysconfig.get_paths()["purelib"]
    (packages / "borrowed.pth").write_text(f"import site; site.addsitedir({borrowed!r})\n")
    (packages / "sitecustomize.py").write_text(GUARD)
    wanted = str(Path(release).resolve()) if Path(release).exists() else f"verl=={release}"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", str(packages), wanted], check=True)
    return folder / "bin/python"


def imports() -> Iterator[tuple[str, str, str]]:
    """Where something of verl is imported, the module, and the name in it ("" for the module itself)."""
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Import):
                yield from ((place, each.name, "") for each in node.names if each.name.split(".")[0] == "verl")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "verl":
                yield from ((place, str(node.module), each.name) for each in node.names)


def probe() -> dict[str, list[list[str]]]:
    """In the environment: requirements that are not met, imports that fail, patches that do not apply."""
    unmet = []
    for line in metadata.requires("verl") or []:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            found = "absent"
        if found == "absent" or not wanted.specifier.contains(found.partition("+")[0], prereleases=True):
            unmet.append([wanted.name, str(wanted.specifier), found])
    from agent_rl.cpu import platform  # noqa: F401 - the platform registers itself
    from agent_rl.verl_adapter.hooks import hooks

    broken = [
        [place, f"{module}.{name}".rstrip("."), why]
        for place, module, name in imports()
        if (why := tried(module, name))
    ]
    applied = []
    for module, action in hooks():
        try:
            action(importlib.import_module(module))
            why = ""
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
        applied.append([f"{action.__module__.removeprefix('agent_rl.')}.{action.__name__}", module, why])
    return {"unmet": unmet, "broken": broken, "applied": applied}


def tried(module: str, name: str) -> str:
    """Why an import fails; empty: it does not."""
    try:
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def tested(python: Path, out: Path) -> list[tuple[str, bool, str]]:
    """Of each test of a patch: its name, whether it passed, and its message."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={out}", *TESTS]
    command += ["-k", "not another_verl_is_refused"]
    subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, check=False)
    cases = []
    for case in ET.parse(out).iter("testcase"):
        failure = next((each for each in case if each.tag in ("failure", "error")), None)
        raised = re.findall(r"[\w.]*(?:Error|Exception): .+", "" if failure is None else failure.get("message") or "")
        message = raised[-1][:100] if raised else ""
        cases.append((f"{case.get('classname')}::{case.get('name')}", failure is None, message))
    return cases


def environment() -> dict[str, str]:
    return os.environ | {"VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def show(console: Console, title: str, columns: list[str], rows: list[list[str]]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    console.print(table if rows else f"{title}: none")


def main(release: str) -> int:
    console = Console(width=160 if not sys.stdout.isatty() else None)
    python = install(release)
    env = environment() | {"VERL_USE_EXTERNAL_PLUGINS": "none"}
    env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], *stand_ins()])
    done = subprocess.run([python, __file__, "--probe"], capture_output=True, text=True, env=env, cwd=ROOT, check=False)
    if done.returncode:
        console.print(done.stderr, markup=False)
        return 1
    found = json.loads(done.stdout.splitlines()[-1])
    show(
        console,
        f"requirements of verl {release} that .venv does not meet",
        ["package", "wanted", "found"],
        found["unmet"],
    )
    show(console, "imports that are gone", ["where", "what", "why"], found["broken"])
    applied = [[name, module, why or "applies"] for name, module, why in found["applied"]]
    show(console, "registrations and patches", ["which", "waits for", "on this release"], applied)
    verdicts = {(True, True): "still needed", (True, False): "no longer needed, or changed"}
    verdicts |= {(False, True): "works", (False, False): "does not work"}
    cases = tested(python, python.parents[1] / "tests.xml")
    rows = [[name, verdicts[bool(NEED.search(name.partition("::")[2])), passed], why] for name, passed, why in cases]
    show(console, "tests of the patches", ["test", "on this release", "message"], rows)
    failed = [*found["broken"], *(row for row in found["applied"] if row[2]), *(case for case in cases if not case[1])]
    return int(bool(failed))


if __name__ == "__main__":
    if sys.argv[1:] == ["--probe"]:
        print(json.dumps(probe()))
    else:
        sys.exit(main(sys.argv[1]))
