"""Starting points: a working task, tool, agent, reward or recipe with its test, copied from the files in `starts/`.

Each folder of `starts/`, except `task`, is a complete recipe named `my_<kind>`; a copy gets the name that users choose.
The README in the folder lists the next commands.
"""

from __future__ import annotations

import keyword
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from agent_rl.agents.registry import agent_names
from agent_rl.errors import ConfigError
from agent_rl.launch.recipes import described, share_folder
from agent_rl.tools.builtin import built_in_names

STARTS = Path(__file__).parent / "starts"
KINDS = tuple(sorted(path.name for path in STARTS.iterdir() if path.is_dir()))
SIZES = "recipes/gsm8k_calculator/size"
"""Model, batch and memory settings that a starting point shares with the recipes."""


def make_start(kind: str, name: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Write a starting point.

    Args:
        kind: one of `KINDS`.
        name: the name of the task, tool, agent, reward or recipe, a Python identifier.
        folder: the new folder.

    Returns:
        The written files, and the next commands to run.

    Raises:
        ConfigError: the name cannot be used, or the folder exists.
    """
    _check_name(kind, name)
    if folder.exists():
        raise ConfigError(str(folder), "the folder already exists", "Choose a new folder with --to")
    shutil.copytree(STARTS / kind, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in sorted(folder.iterdir()):
        text = path.read_text(encoding="utf-8").replace(f"my_{kind}/", "\0/")  # the folder may contain `my_<kind>` too
        text = re.sub(rf"(agent-rl train|pytest|--config) my_{kind}(?=\s|`)", "\\1 \0", text)
        text = text.replace(f"my_{kind}", name).replace(f"My{kind.title()}", name.title().replace("_", ""))
        text = text.replace("\0", shlex.quote(str(folder)))
        path.unlink()
        (folder / path.name.replace(f"my_{kind}", name)).write_text(text, encoding="utf-8")
    for size in ("0.5b", "cpu") if (folder / "config.yaml").exists() else ():
        (folder / "size").mkdir(exist_ok=True)
        text = (share_folder() / SIZES / f"{size}.yaml").read_text(encoding="utf-8")
        text = text.replace("save_freq: -1", "save_freq: 2 # the last step: agent-rl eval evaluates it")
        (folder / f"size/{size}.yaml").write_text(text, encoding="utf-8")
    if (script := folder / "make_rows.py").exists():
        subprocess.run([sys.executable, script], check=True)
    page = (folder / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^```bash\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0].splitlines()
    return sorted(path for path in folder.rglob("*") if path.is_file()), commands


def _check_name(kind: str, name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        near = re.sub(r"\W+", "_", name.lower()).strip("_")
        remedy = f"Use a name like {near or 'unit_converter'!r}"
        raise ConfigError("NAME", f"{name!r} is not a valid name for a Python module", remedy)
    taken: dict[str, Iterable[str]] = {"tool": built_in_names(), "agent": agent_names(), "recipe": described()}
    if name in taken.get(kind, ()):
        raise ConfigError("NAME", f"agent_rl already has a {kind} {name!r}", "Choose another name")
    if name in sys.stdlib_module_names or name == "agent_rl":
        raise ConfigError("NAME", f"{name!r} is already a module", "Choose another name")
