"""The floor: imports point down only, and what must stay light stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agent_rl"

FLOORS = [
    {
        "trajectory",
        "errors",
        "settings",
        "trace",
        "remote",
        "sandbox",
        "responses",
        "secrets",
        "importing",
        "reward_settings",
        "concurrency",
        "serving_settings",
    },
    {"tools", "rewards", "data", "viewer"},
    {"loops", "policies", "reasoning_rm", "algorithms"},
    {"backend", "config", "launch", "doctor", "evaluation", "plugin", "reward_command", "cli"},
]
LEVEL = {name: level for level, names in enumerate(FLOORS) for name in names}

HEAVY = {"torch", "verl", "ray", "transformers"}
MAY_IMPORT_HEAVY = (
    "rewards/manager.py",
    "loops/verl_loop.py",
    "loops/verl_tools.py",
    "loops/code_act_agent.py",
    "loops/folding_agent.py",
    "loops/plan_act_agent.py",
    "loops/react_agent.py",
    "loops/rendering.py",
    "loops/tool_call_agent.py",
    "policies/local.py",
    "loops/search_agent.py",
    "loops/user_sim_agent.py",
    "algorithms/remax_rollout.py",
    "backend/",
)


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "stand_ins" not in path.parts]


def part(module: str) -> str:
    return module.split(".")[1]


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "agent_rl":
                found |= {f"agent_rl.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if own == "__init__":
        return  # the package's own names, loaded when they are used
    for module in imports(path):
        if not module.startswith("agent_rl.") or part(module) == own:
            continue
        other = part(module)
        if (own, other) == ("loops", "backend") or LEVEL[other] > LEVEL[own]:
            pytest.fail(f"{path.name} imports {module}, which stands above it")
        if LEVEL[other] == LEVEL[own] == 1:
            pytest.fail(f"{path.name} imports {module}, its neighbour")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_imports_stay_where_they_are_used(path: Path) -> None:
    relative = str(path.relative_to(PACKAGE))
    if relative.startswith(MAY_IMPORT_HEAVY):
        return
    heavy = {module.split(".")[0] for module in imports(path, top_level_only=True)} & HEAVY
    assert not heavy, f"{relative} imports {heavy} at its top"


@pytest.mark.parametrize(
    "statement",
    [
        "import agent_rl.tools",
        "import agent_rl.rewards",
        "import agent_rl.data",
        "import agent_rl.agents.react",
        "import agent_rl.agents.registry",
        "import agent_rl.policies.chat",
        "from agent_rl.cli.main import app; import typer.main; typer.main.get_command(app)",
    ],
)
def test_light_parts_import_without_torch(statement: str) -> None:
    code = f"{statement}; import sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_module_has_a_test() -> None:
    """Tests mirror the package; what only adapts to verl is tested where it runs."""
    without = {
        "backend/engine",
        "doctor/child",
        "evaluation/audit_command",
        "backend/rollout",
        "backend/server",
        "plugin",
        "responses",
        "sandbox/host/execution",
        "sandbox/host/packages",
        "sandbox/host/pool",
        "sandbox/host/process",
        "sandbox/host/supervisor",
        "sandbox/jail/acts",
        "sandbox/jail/call",
        "sandbox/jail/child",
        "sandbox/jail/landlock",
        "sandbox/jail/namespace",
        "sandbox/jail/protocol",
        "sandbox/jail/scratch",
        "sandbox/jail/syscalls",
        "sandbox/jail/warm",
        "sandbox/jail/zygote",
        "loops/react_agent",
        "algorithms/remax_rollout",
        "tools/entry",
        "tools/slot",
        "tools/spec",
        "tools/toolset",
        "tools/importing",
        "tools/concurrency",
        "tools/arguments",
        "backend/placeholder",
        "backend/platform",
    }
    missing = []
    for path in modules():
        relative = path.relative_to(PACKAGE).with_suffix("")
        helper = any(part.startswith("_") for part in relative.parts)  # tested through the module that it helps
        if helper or str(relative) in without:
            continue
        if not (ROOT / "tests" / relative.parent / f"test_{relative.name}.py").exists():
            missing.append(str(relative))
    assert not missing
