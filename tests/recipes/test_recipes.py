"""Every recipe composes against verl's own configuration and passes its validation; an unknown key fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path.parent for path in (ROOT / "recipes").glob("*/config.yaml"))

COMPOSE = """
import sys, hydra
from omegaconf import OmegaConf
import verl
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
recipe, *overrides = sys.argv[1:]
with hydra.initialize_config_dir(recipe, version_base=None):
    config = hydra.compose("config", overrides)
with hydra.initialize_config_module("verl.trainer.config", version_base=None):
    known = hydra.compose("ppo_trainer")

def unknown(ours, verls, path=""):
    for key in ours:
        here = f"{path}.{key}".lstrip(".")
        if here == "agent_rl" or here.startswith(FREE):
            continue
        if key not in set(verls.keys()):  # `in` denies a mandatory value, ???
            yield here
        elif OmegaConf.is_dict(ours._get_node(key)) and OmegaConf.is_dict(verls._get_node(key)):
            yield from unknown(ours[key], verls[key], here)

FREE = ("ray_kwargs.ray_init", "actor_rollout_ref.model.override_config", "actor_rollout_ref.rollout.engine_kwargs")
FREE += tuple(f"{part}.mixed_precision" for part in
              ("actor_rollout_ref.actor.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp"))
assert not (found := list(unknown(config, known))), f"verl has no key {found}"
validate_config(config, need_reference_policy(config), need_critic(config))
for part in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout"):
    omega_conf_to_dataclass(OmegaConf.select(config, part))
print("composes")
"""


def compose(recipe: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COMPOSE, str(recipe), *overrides],
        capture_output=True, text=True, cwd=ROOT, timeout=100, env=os.environ | {"VERL_PLATFORM": "cpu"},
    )  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
@pytest.mark.parametrize("platform", ["gpu", "cpu"])
def test_recipes_compose_on_both_platforms(recipe: Path, platform: str) -> None:
    overrides = []
    if platform == "cpu":
        overrides = ["+platform=cpu", *(["size=cpu"] if (recipe / "size").is_dir() else [])]
    elif recipe.name == "quickstart":
        pytest.skip("the quickstart is for CPUs")
    done = compose(recipe, *overrides)
    assert done.stdout.strip().endswith("composes"), done.stderr[-2000:]


def test_a_key_that_verl_does_not_know_fails(tmp_path: Path) -> None:
    text = (ROOT / "recipes/gsm8k_calculator/config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(
        text.replace("  actor:\n", "  actor:\n    learning_rate: 1\n").replace("  - size: 3b\n", "")
    )
    assert "verl has no key ['actor_rollout_ref.actor.learning_rate']" in compose(tmp_path).stderr


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_has_its_three_files(recipe: Path) -> None:
    assert {"config.yaml", "run.sh", "README.md"} <= {path.name for path in recipe.iterdir()}
    assert '"$@"' in (recipe / "run.sh").read_text()
    assert os.access(recipe / "run.sh", os.R_OK)
    subprocess.run(["bash", "-n", str(recipe / "run.sh")], check=True)
