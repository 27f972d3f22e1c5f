"""A copy of a recipe whose twin is tiny."""

import shutil
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tiny_recipe(tmp_path_factory):
    """text_to_sql with few rows, whose cold start takes two steps; its folder `world` beside it."""
    folder = tmp_path_factory.mktemp("gallery")
    recipe = folder / "tiny"
    shutil.copytree(ROOT / "recipes/text_to_sql", recipe, ignore=shutil.ignore_patterns("results"))
    size = recipe / "size/cpu.yaml"
    config = yaml.safe_load(size.read_text().replace("outputs/worlds/text_to_sql", str(folder / "world")))
    config["agent_rl"]["cold_start"] |= {
        "episode_rows": 48, "train_rows": 16, "held_out": 12, "batch": 16,
        "stages": [{"mix": {"oracle": 1, "malformed": 1}, "steps": 2}],
    }  # fmt: skip
    size.write_text("# @package _global_\n" + yaml.safe_dump(config))
    return recipe
