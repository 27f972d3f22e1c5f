"""The floor plan: imports point to lower floors, the trainer stays in its folders, tests mirror the package."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agent_rl"

FLOORS = (
    "errors",
    "work",
    "trajectory",
    "settings",
    "remote",
    "sandbox",
    "tools",
    "data",
    "rewards",
    "reasoning_rm",
    "environments",
    "agents",
    "cpu",
    "preflight",
    "verl_adapter",
    "launch",
    "evaluation",
    "conformance",
    "cli",
)
"""From the ground up. config/ has no code."""
WITHOUT_FLOOR = {"__init__", "config"}
OF_THE_TRAINER = ("verl_adapter", "cpu")
"""These import verl, at the top of a module or in a function; nothing else does."""
HEAVY = {"verl", "torch", "ray", "transformers", "sglang"}
"""Imported by all other folders in functions only, if at all."""


def modules() -> list[Path]:
    """All but those with the names of what they stand for, and those that are copied for users."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if not {"stand_ins", "starts"} & set(path.parts)]


def floor(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path, *, top_level_only: bool = False) -> Iterator[str]:
    """Names of the modules that a module imports; `from package import module` names the module."""
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else node.module


def is_module(name: str) -> bool:
    place = ROOT / name.replace(".", "/")
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def named(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def test_imports_point_to_lower_floors() -> None:
    for path in modules():
        own = floor(path)
        for module in () if own in WITHOUT_FLOOR else imports(path):
            if not module.startswith("agent_rl.") or module.split(".")[1] in (own, *WITHOUT_FLOOR):
                continue
            other = module.split(".")[1]
            assert FLOORS.index(other) < FLOORS.index(own), f"{named(path)} imports {module}, which stands above it"


def test_every_folder_has_its_floor() -> None:
    assert {floor(path) for path in modules()} - WITHOUT_FLOOR == set(FLOORS)


def test_verl_is_imported_by_two_folders_and_heavy_modules_where_they_are_used() -> None:
    for path in modules():
        if floor(path) in OF_THE_TRAINER:
            continue
        assert not [module for module in imports(path) if module.split(".")[0] == "verl"], named(path)
        heavy = {module.split(".")[0] for module in imports(path, top_level_only=True)} & HEAVY
        assert not heavy, f"{named(path)} imports {heavy} at its top"


def test_no_import_circle() -> None:
    """Among modules, wherever in them they import."""
    left = {dotted(path): set(imports(path)) - {dotted(path)} for path in modules()}
    while free := [name for name, needed in left.items() if not needed & left.keys()]:
        for name in free:
            del left[name]
    assert not left, sorted(left)


def dotted(path: Path) -> str:
    return ".".join(("agent_rl", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


LIGHT = (
    *("import agent_rl.tools", "import agent_rl.rewards", "import agent_rl.reasoning_rm", "import agent_rl.data"),
    *("import agent_rl.agents.react", "import agent_rl.agents.registry", "import agent_rl.agents.policies.chat"),
    *("import agent_rl.evaluation.runner", "import agent_rl.launch.doctor", "import agent_rl.preflight.own_code"),
    "import agent_rl.launch.training",
    "from agent_rl.cli.main import app; import typer.main; typer.main.get_command(app)",
)


def test_light_parts_import_without_torch() -> None:
    said = "; print([{statement!r}, sorted({heavy} & set(sys.modules))])"
    code = "\n".join(
        ["import sys", *(statement + said.format(statement=statement, heavy=HEAVY) for statement in LIGHT)]
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str([statement, []]) for statement in LIGHT]


def test_what_folders_use_of_each_other_has_a_test() -> None:
    """A file or folder of its name where it stands in the package, or one elsewhere that imports or names it.

    What only its own folder imports is tested through that; the adapters to verl and SGLang run in tests/e2e.
    """
    tests = "\n".join(path.read_text() for path in sorted((ROOT / "tests").rglob("*.py")))
    used = {
        module for path in modules() for module in imports(path) if module.split(".")[1:2] not in ([], [floor(path)])
    }
    missing = []
    for path in modules():
        if dotted(path) not in used or floor(path) in OF_THE_TRAINER:
            continue
        relative = path.relative_to(PACKAGE).with_suffix("")
        mirror = ROOT / "tests" / relative.parent
        mirrored = (mirror / f"test_{relative.name}.py").exists() or (mirror / relative.name).is_dir()
        if not mirrored and not re.search(rf"{re.escape(dotted(path))}\b", tests):
            missing.append(str(relative))
    assert not missing


def test_every_folder_has_its_tests() -> None:
    """In the folder of its name or, as a helper's (`_sql`), in a file of its name."""
    for folder in {path.parent for path in modules()} - {PACKAGE, PACKAGE / "config"}:
        mirror = ROOT / "tests" / named(folder)
        assert mirror.is_dir() or mirror.with_name(f"test_{mirror.name.removeprefix('_')}.py").exists(), mirror
