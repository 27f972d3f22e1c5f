"""Copies of the gallery's recipes whose twins are tiny."""

import shutil
from pathlib import Path

import yaml

__all__ = ["ROOT", "TWINS", "tiny_twin"]

ROOT = Path(__file__).parents[3]
TWINS = sorted(
    path.parents[1].name for path in ROOT.glob("recipes/*/size/cpu.yaml") if "cold_start:" in path.read_text()
)


def tiny_twin(name: str, folder: Path) -> Path:
    """The recipe with few rows, whose cold start takes two steps.

    Args:
        name: of the recipe.
        folder: gets the recipe in `tiny`, and what its cold start makes in `world`.
    """
    recipe = folder / "tiny"
    shutil.copytree(ROOT / "recipes" / name, recipe, ignore=shutil.ignore_patterns("results"))
    for path in recipe.rglob("*.yaml"):
        text = path.read_text().replace(f"outputs/worlds/{name}", str(folder / "world"))
        path.write_text(text.replace(f"recipes/{name}/", f"{recipe}/"))
    size = recipe / "size/cpu.yaml"
    config = yaml.safe_load(size.read_text())
    broken = "unreadable" if config["agent_rl"]["cold_start"]["world"] == "environment" else "malformed"
    config["agent_rl"]["cold_start"] |= {
        "episode_rows": 48, "train_rows": 16, "held_out": 12, "batch": 16,
        "stages": [{"mix": {"oracle": 1, broken: 1}, "steps": 2}],
    }  # fmt: skip
    size.write_text("# @package _global_\n" + yaml.safe_dump(config))
    return recipe
