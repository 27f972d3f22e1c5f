"""Tries another release of verl: `make test VERL=0.10.0`, or a path to its source.

The release is installed, without what it requires, into an environment of its own that borrows everything else from
`.venv`. Two tables say which requirements are not met there, and which imports of ours it lacks; then the tests of our
patches run. The exit status is 1 when an import is gone or a test fails.
"""

import ast
import importlib
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

from agent_rl.cpu.switch import stand_ins

ROOT = Path(__file__).parents[2]
FOLDERS = ("agent_rl/verl_adapter", "agent_rl/cpu")
"""All that imports verl."""
TESTS = [f"tests/cpu/test_{name}.py" for name in ("patches", "speed")]
TESTS += [
    f"tests/verl_adapter/test_{name}.py"
    for name in (
        *("failures", "ending", "ordering", "patches", "replay_buffer", "reward_loop", "rollout", "served_models"),
        *("trained_samples", "stages", "updates"),
    )
]
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


def probe() -> int:
    """In the environment: print requirements that are not met, and imports that fail; 1 where an import does."""
    unmet = []
    for wanted in map(Requirement, metadata.requires("verl") or []):
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            found = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            found = "absent"
        if found == "absent" or not wanted.specifier.contains(found.partition("+")[0], prereleases=True):
            unmet.append((wanted.name, str(wanted.specifier), found))
    from agent_rl.cpu import platform  # noqa: F401 - the platform registers itself

    broken = [
        (place, f"{module}.{name}".rstrip("."), why)
        for place, module, name in imports()
        if (why := tried(module, name))
    ]
    show("requirements that .venv does not meet", ("package", "wanted", "found"), unmet)
    show("imports that are gone", ("where", "what", "why"), broken)
    return int(bool(broken))


def tried(module: str, name: str) -> str:
    """Why an import fails; empty: it does not."""
    try:
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=160 if not sys.stdout.isatty() else None).print(table if rows else f"{title}: none")


def main(release: str) -> int:
    python = install(release)
    env = os.environ | {"VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    alone = {"VERL_USE_EXTERNAL_PLUGINS": "none", "PYTHONPATH": os.pathsep.join([str(ROOT), *stand_ins()])}
    probed = subprocess.run([python, __file__, "--probe"], env={**env, **alone}, cwd=ROOT, check=False).returncode
    options = ["-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-W", "default"]
    command = [python, "-m", "pytest", *options, "-k", "not another_verl_is_refused", *TESTS]
    return int(bool(probed or subprocess.run(command, cwd=ROOT, env=env, check=False).returncode))


if __name__ == "__main__":
    sys.exit(probe() if sys.argv[1:] == ["--probe"] else main(sys.argv[1]))
