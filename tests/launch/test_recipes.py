import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from agent_rl.errors import ConfigError
from agent_rl.launch.composition import compose
from agent_rl.launch.recipes import copy_recipe, described, found_files, recipe_folder

ROOT = Path(__file__).parents[2]


def test_a_name_is_a_recipe_of_the_package_in_any_folder(here: Path) -> None:
    for name in ("llm_judge", "recipes/llm_judge", str(ROOT / "recipes/llm_judge")):
        assert recipe_folder(name) == ROOT / "recipes/llm_judge"


def test_a_folder_is_found_before_a_recipe_of_its_name(here: Path) -> None:
    (here / "llm_judge").mkdir()
    assert recipe_folder("llm_judge") == ROOT / "recipes/llm_judge"  # no config.yaml is no recipe
    (here / "llm_judge/config.yaml").touch()
    assert recipe_folder("llm_judge") == here / "llm_judge"


def test_every_recipe_is_described_in_a_sentence() -> None:
    known = described()
    assert set(known) == {path.parent.name for path in ROOT.glob("recipes/*/config.yaml")}
    assert all(text.endswith(".") for text in known.values())


@pytest.mark.parametrize("name", described())
def test_the_files_of_a_recipe_are_found_from_any_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert found_files(ROOT / "recipes" / name) == {}
    monkeypatch.chdir(tmp_path)
    found = found_files(ROOT / "recipes" / name)
    names_tools = "tool_config_path:" in (ROOT / "recipes" / name / "config.yaml").read_text()
    assert ("actor_rollout_ref.rollout.multi_turn.tool_config_path" in found) == names_tools
    assert all(Path(value.partition(".py:")[0] + ".py" * (".py:" in value)).is_file() for value in found.values())


def test_what_the_user_gives_wins_over_the_found_file(here: Path) -> None:
    key = "actor_rollout_ref.rollout.multi_turn.tool_config_path"
    assert str(OmegaConf.select(compose("llm_judge"), key)).startswith(str(ROOT))
    assert OmegaConf.select(compose("llm_judge", [f"{key}=mine.yaml"]), key) == "mine.yaml"


def test_a_copy_has_all_that_can_be_changed(here: Path) -> None:
    files = {str(path) for path in copy_recipe("llm_judge", Path("mine/judged"))}
    names = ("config.yaml", "README.md", "judge.md", "rubric.yaml", "calculator.yaml", "gsm8k_multiturn_w_tool.py")
    assert {f"mine/judged/{name}" for name in names} <= files
    composed = compose("mine/judged")
    assert composed.trainer.experiment_name == "judged"
    folder = here / "mine/judged"
    assert composed.actor_rollout_ref.rollout.multi_turn.tool_config_path == str(folder / "calculator.yaml")
    assert composed.agent_rl.reward.components.judge.config.rubric == str(folder / "rubric.yaml")
    with pytest.raises(ConfigError, match="the folder already exists"):
        copy_recipe("llm_judge", Path("mine/judged"))


@pytest.mark.parametrize("name", ["001", "1e3", "no", "v1: a", r"a\1"])
def test_a_copy_is_named_after_its_folder_whatever_yaml_reads_into_the_name(here: Path, name: str) -> None:
    copy_recipe("llm_judge", Path(name))
    assert compose(f"./{name}").trainer.experiment_name == name


@pytest.mark.parametrize("name", described())
def test_a_copy_names_no_file_outside(name: str, here: Path) -> None:
    original = {key for key, path in found_files(ROOT / "recipes" / name).items() if "/outputs/" not in path}
    copy_recipe(name, Path("copied"))
    found = found_files(here / "copied")
    assert found.keys() == original
    assert all(value.startswith(f"{here}/copied/") for value in found.values())


def test_the_wheel_has_recipes_tools_and_every_file_of_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("recipes", "tool_configs", "data_preprocess"):
        tracked = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True).stdout.split()
        assert {f"agent_rl/_share/{path}" for path in tracked} <= names
    tracked = subprocess.run(["git", "ls-files", "agent_rl"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert set(tracked) <= names
