"""Finds the package's recipes by name, and the files to which a recipe refers.

In a clone, recipes and tool files are in `recipes/` and `tool_configs/`; in the wheel, these folders are under
`agent_rl/_share`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

import agent_rl
from agent_rl.environments.families import family_names
from agent_rl.errors import AgentRLError, ConfigError, did_you_mean
from agent_rl.launch.task import is_task, require_experts, small_model, task_recipe
from agent_rl.trajectory.run_files import leaves

if TYPE_CHECKING:
    from agent_rl.preflight.case import RunCase

_FILE = re.compile(r"(?P<path>[\w.-][\w./-]*\.(?:yaml|yml|json|jsonl|parquet|md|txt|py))(?::\w+)?")
_SHARED = re.compile(r"(?:tool_configs|recipes/\w+)/(\w+\.(?:yaml|py))")
"""Matches the paths of tool files, and of files in other recipes."""
_LEFT_OUT = ("run.sh", "results", "__pycache__")
"""Files that a copy of a recipe does not need, because `agent-rl train` runs the copy."""


def share_folder() -> Path:
    """Return the folder with `recipes/`, `tool_configs/` and `data_preprocess/`."""
    package = Path(agent_rl.__file__).parent
    return inside if (inside := package / "_share").is_dir() else package.parent


def described() -> dict[str, str]:
    """Return the names of the package's recipes, each with the first sentence of its README."""
    descriptions = {}
    for file in sorted(share_folder().glob("recipes/*/config.yaml")):
        page = (file.parent / "README.md").read_text(encoding="utf-8")
        sentence = re.search(r"^(?![#\s])(.+?\.)(?:\s|$)", page, re.MULTILINE | re.DOTALL)
        descriptions[file.parent.name] = " ".join(sentence[1].split()) if sentence else ""
    return descriptions


def recipe_folder(recipe: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a recipe's folder.

    Args:
        recipe: a folder with `config.yaml`; the name of a packaged recipe, `NAME` or `recipes/NAME`; or the file of an
            environment, `FILE.py` or `FILE.py:Class`, for which a recipe is written.

    Raises:
        ConfigError: `recipe` is neither a recipe nor an environment.
    """
    if is_task(str(recipe)):
        return task_recipe(str(recipe))
    folder = Path(recipe).expanduser().resolve()
    if (folder / "config.yaml").is_file():
        return folder
    name = str(recipe).removeprefix("recipes/").rstrip("/")
    packaged = share_folder() / "recipes" / name
    if name and "/" not in name and (packaged / "config.yaml").is_file():
        return packaged
    if ":" in name:
        family = name.partition(":")[0]
        problem = f"unknown family of environments {family!r}"
        raise ConfigError(str(recipe), problem, f"{did_you_mean(family, family_names())} A file is FILE.py:Class")
    problem = "there is no config.yaml" if folder.is_dir() else "there is no such folder, and no recipe with this name"
    remedy = f"Pass a folder with config.yaml, or the name of a recipe. {did_you_mean(name, described())}"
    raise ConfigError(str(recipe), problem, remedy)


def results_folder(recipe: str) -> Path:
    """Return the folder of a recipe's receipt: `results/` in the recipe's folder, or next to an environment's file."""
    home = Path(recipe.partition(".py")[0]).resolve().parent if is_task(recipe) else recipe_folder(recipe)
    return home / "results"


def found_files(folder: Path) -> dict[str, str]:
    """Return absolute paths for the keys in a recipe's `config.yaml` whose files are not in the working directory.

    Such files are searched for in the recipe's folder and the two folders above it.
    """
    try:
        written = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):  # composing the configuration will report the problem
        return {}
    paths = {}
    for key, value in leaves(written):
        match = _FILE.fullmatch(value) if isinstance(value, str) else None
        if match is None or key.startswith("hydra.") or Path(match["path"]).exists():
            continue
        if place := next((each for each in (folder, *folder.parents[:2]) if (each / match["path"]).is_file()), None):
            paths[key] = str(place / value)
    return paths


def data_scripts(folder: Path) -> list[Path]:
    """Return the scripts that a recipe's README names to build its data, in the recipe's folder or in the package."""
    page = folder / "README.md"
    names = re.findall(r"data_preprocess/(\w+\.py)", page.read_text(encoding="utf-8")) if page.is_file() else []
    places = (folder, share_folder() / "data_preprocess")
    scripts = (
        next((place / name for place in places if (place / name).is_file()), None) for name in dict.fromkeys(names)
    )
    return [path for path in scripts if path is not None]


def rows_remedy(path: str, case: RunCase) -> str:
    """Return the remedy for a missing row file."""
    scripts = data_scripts(recipe_folder(case.recipe)) if case.recipe else []
    how = _cold_start(path, case) or " ".join(f"python {os.path.relpath(script)}" for script in scripts)
    return f"Make the rows with: {how}; or correct the path" if how else "Correct the path"


def model_remedy(path: str, case: RunCase) -> str:
    """Return the remedy for a missing model."""
    if case.recipe and is_task(case.recipe) and Path(path).absolute() == small_model(task_recipe(case.recipe)):
        try:
            require_experts(case.recipe)
        except AgentRLError as error:
            return str(error)
    if how := _cold_start(path, case):
        return f"Make the model with: {how}; or correct the path"
    if case.on_cpu:
        return f"Run python -m agent_rl.cpu.tiny_model --out {shlex.quote(path)} to make one; or correct the path"
    return "Correct the path, or use a model on the Hub"


def _cold_start(path: str, case: RunCase) -> str:
    """Return the command that builds the rows and the model of a recipe's cold start, or "" for another path."""
    model = case.get("actor_rollout_ref.model.path")
    folder, target = (Path(str(each)).expanduser().absolute().parent for each in (path, model))
    is_made = case.recipe and case.get("agent_rl.cold_start") and folder == target
    return shlex.join(["agent-rl", "sft", str(case.recipe), *case.overrides]) if is_made else ""


def copy_recipe(name: str, target: Path) -> list[Path]:
    """Copy a recipe with the files it refers to, so that the user can change all of them.

    Args:
        name: the name of one of the package's recipes.
        target: the new folder; its name is the new `trainer.experiment_name`.

    Returns:
        The copied files.

    Raises:
        ConfigError: the name is unknown, or the folder exists.
    """
    if name not in (recipes := described()):
        raise ConfigError(name, "there is no recipe with this name", did_you_mean(name, recipes))
    if target.exists():
        raise ConfigError(str(target), "the folder already exists", "Choose a new folder")
    share = share_folder()
    shutil.copytree(share / "recipes" / name, target, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    config = (target / "config.yaml").read_text(encoding="utf-8").replace(f"recipes/{name}/", "")
    files = [match[0] for match in _SHARED.finditer(config)]
    for file in [*data_scripts(target), *(share / each for each in files)]:
        shutil.copy(file, target)
    config = _SHARED.sub(r"\1", config)
    quoted = json.dumps(target.name, ensure_ascii=False)  # YAML would read 001 as 1, and no as false
    config = re.sub(rf"^(  experiment_name:) {name}$", lambda key: f"{key[1]} {quoted}", config, flags=re.MULTILINE)
    (target / "config.yaml").write_text(config, encoding="utf-8")
    return sorted(path for path in target.rglob("*") if path.is_file())
