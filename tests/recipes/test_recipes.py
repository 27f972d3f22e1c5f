"""Every recipe, with every choice of its groups, composes with verl's own configuration and passes its validation."""

import itertools
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import get_class
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config

from agent_rl.data.sources import split_of
from agent_rl.errors import ConfigError
from agent_rl.launch.composition import NOT_IN_YAML, compose, verl_defaults
from agent_rl.launch.doctor.case import Case
from tests.docs.pages import commands
from tests.recipes.formula import check_readme
from tests.recipes.matrix import ALGORITHMS, CORRECTIONS, ENTRIES, KL
from tests.support.profiles import FULL, bounded

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "agent_rl/config"
RECIPES = sorted(path.parent for path in (ROOT / "recipes").glob("*/config.yaml"))
PAIRS = itertools.product(ALGORITHMS, KL) if FULL else zip(ALGORITHMS, itertools.cycle(KL), strict=False)
CHOICES = [list(pair) for pair in PAIRS if pair != ("algo=gdpo", "kl=reward")]  # which is refused
CHOICES += [entry.overrides for entry in ENTRIES.values() if entry.overrides not in CHOICES]


@pytest.fixture
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("VERL_PLATFORM", "cpu" if request.param == "cpu" else "")
    return str(request.param)


def compositions() -> list[Any]:
    """Each recipe on each platform by itself and with each choice.

    By default, each algorithm occurs with one of the KL terms, and each choice with one of the recipes.
    """
    places = [(recipe, place) for recipe in RECIPES for place in ("gpu", "cpu")]
    places.remove((ROOT / "recipes/quickstart", "gpu"))  # it is for CPUs
    places.remove((ROOT / "recipes/geo3k", "cpu"))  # and this is not
    plain: list[tuple[Path, str, list[str]]] = [(*place, []) for place in places]
    chosen = [
        (*place, choice)
        for number, choice in enumerate(CHOICES)
        for place in (places if FULL else [places[number % len(places)]])
    ]
    return [pytest.param(*each, id=" ".join((each[0].name, each[1], *each[2]))) for each in plain + chosen]


@bounded
@pytest.mark.filterwarnings("ignore:Disabled critic")
@pytest.mark.parametrize(("recipe", "platform", "choice"), compositions(), indirect=["platform"])
def test_every_choice_composes(
    recipe: Path, choice: list[str], platform: str, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`compose` refuses keys that verl does not know; the rest is what verl checks before Ray starts, names, and the
    reward, which is that of the README."""
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "contents": "Rome is in Italy."}\n')
    monkeypatch.setenv("SEARCH_CORPUS", str(tmp_path / "corpus.jsonl"))
    other = ("agent_rl.gateway.python=null", "agent_rl.gateway.function=null", "agent_rl.gateway.command=env")
    needs = [*other] if recipe.name in ("langgraph", "verifiers") else []  # which have a Python of their own
    needs += ["actor_rollout_ref.rollout.n=2"] if choice else []  # some recipes have one sample, which has no group
    config = compose(recipe, [*choice, *needs])
    if not choice:
        check_readme(recipe.name, Case(config=config), monkeypatch)
    config.actor_rollout_ref.model.path = str(tiny_model)  # the critic's configuration reads it
    validate_config(config, need_reference_policy(config), need_critic(config))
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert config.agent_rl.trace == {"path": f"{config.agent_rl.run.folder}/trace.jsonl", "tokens": True}
    get_adv_estimator_fn(config.algorithm.adv_estimator)
    get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_repeats_nothing_of_the_base(recipe: Path) -> None:
    base, own = (OmegaConf.load(path) for path in (CONFIG / "agent.yaml", recipe / "config.yaml"))
    OmegaConf.update(base, "trainer.experiment_name", "of the base", force_add=True)  # which its folders refer to
    keys = leaves(CONFIG / "agent.yaml")
    same = [key for key in keys if OmegaConf.select(own, key, default="absent") == OmegaConf.select(base, key)]
    assert same == []
    assert own.defaults[0] == "agent"


@pytest.mark.parametrize("key", NOT_IN_YAML)
def test_keys_that_only_dataclasses_have_are_still_missing_in_the_yaml(key: str) -> None:
    owner, _, name = key.rpartition(".")
    section = OmegaConf.select(verl_defaults(), owner)
    assert name not in section
    assert name in {field.name for field in fields(get_class(section._target_))}


@pytest.mark.parametrize(
    ("choice", "rollout_is", "rollout_rs"),
    [
        (["mode=sync"], None, None),
        (["mode=colocate_async"], "token", None),
        (["mode=colocate_async", "correction=none"], None, None),
        (["correction=geo", "mode=separate_async"], None, "seq_mean_k1"),
    ],
)
def test_an_asynchronous_mode_chooses_the_correction_unless_one_is_typed(
    choice: list[str], rollout_is: str | None, rollout_rs: str | None
) -> None:
    correction = compose(ROOT / "recipes/gsm8k_calculator", choice).algorithm.rollout_correction
    assert (correction.rollout_is, correction.rollout_rs) == (rollout_is, rollout_rs)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_sets_nothing_that_a_group_decides(recipe: Path) -> None:
    """A recipe's own keys win over its groups: such a key would take `algo=`, `kl=` and `val=` their effect."""
    files = [path for group in ("algo", "kl", "val", "correction") for path in (CONFIG / group).glob("*.yaml")]
    decided = {key for path in files for key in leaves(path)}
    own = {key: path.name for path in [recipe / "config.yaml", *recipe.glob("size/*.yaml")] for key in leaves(path)}
    assert {key: own[key] for key in decided & own.keys() - FOLLOWING} == {}


FOLLOWING = {
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",  # the group takes it from another key
    "actor_rollout_ref.actor.kl_loss_coef",  # only kl=loss reads it
}
"""What a recipe may say, since no choice of a group loses its effect."""


def leaves(path: Path) -> set[str]:
    def walk(node: Any, key: str) -> Iterator[str]:
        if not isinstance(node, dict):
            yield key
            return
        for name, child in node.items():
            yield from walk(child, f"{key}.{name}".lstrip("."))

    return set(walk(yaml.safe_load(path.read_text()), ""))


@pytest.mark.parametrize("group", ["algo", "kl", "correction"])
def test_the_matrix_has_every_choice(group: str) -> None:
    known = {f"{group}={path.stem}" for path in (CONFIG / group).glob("*.yaml")}
    assert known == set({"algo": ALGORITHMS, "kl": KL, "correction": CORRECTIONS}[group])
    assert known <= {override for entry in ENTRIES.values() for override in entry.overrides}


@pytest.mark.parametrize("group", ["algo", "kl", "correction"])
def test_the_table_has_every_choice(group: str) -> None:
    _, table = (ROOT / "docs/guides/algorithms.md").read_text().split(f"| `{group}=` |", 1)
    rows = re.findall(r"^\| `(\w+)` \|", table.split("\n\n")[0], re.MULTILINE)
    assert sorted(rows) == sorted(path.stem for path in (CONFIG / group).glob("*.yaml"))


def test_algo_and_kl_are_one_line_overrides() -> None:
    config = compose(ROOT / "recipes/gsm8k_calculator", ["algo=ppo", "kl=none", "actor_rollout_ref.actor.optim.lr=1"])
    assert config.algorithm.adv_estimator == "gae"
    assert config.actor_rollout_ref.actor.use_kl_loss is False
    config = compose(ROOT / "recipes/gsm8k_calculator", ["algo=dapo", "actor_rollout_ref.actor.clip_ratio_high=0.5"])
    assert config.actor_rollout_ref.actor.clip_ratio_high == 0.5  # the command line overrides the group
    assert config.agent_rl.reward.overlong.penalty == 1.0
    with pytest.raises(ConfigError, match="Did you mean 'ppo'"):
        compose(ROOT / "recipes/gsm8k_calculator", ["algo=pppo"])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_a_recipe_has_its_three_files(recipe: Path) -> None:
    assert {"config.yaml", "run.sh", "README.md"} <= {path.name for path in recipe.iterdir()}
    assert '"$@"' in (recipe / "run.sh").read_text()
    assert os.access(recipe / "run.sh", os.R_OK)
    subprocess.run(["bash", "-n", str(recipe / "run.sh")], check=True)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
def test_the_commands_of_a_readme_also_write_rows_for_validation(recipe: Path) -> None:
    for command in commands(f"recipes/{recipe.name}/README.md"):
        words = command.words
        if words[1:2] and words[1].startswith("data_preprocess/") and "--input" in words:
            is_split = {"--test_share", "--split_by"} & {*words}
            assert is_split or "test" in map(split_of, words[words.index("--input") + 1 :]), command
