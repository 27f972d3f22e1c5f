import os
import subprocess
import sys
from pathlib import Path

import agent_rl

ROOT = Path(__file__).parent.parent


def cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "VERL_PLATFORM"} | environment
    return subprocess.run([sys.executable, "-m", "agent_rl.cli", *arguments], capture_output=True, text=True, env=env)


def test_help_lists_the_commands() -> None:
    done = cli("--help")
    assert done.returncode == 0
    assert "train" in done.stdout


def test_version() -> None:
    assert cli("version").stdout.strip() == agent_rl.__version__


def test_a_folder_that_is_no_recipe_is_one_line() -> None:
    done = cli("train", "recipes/nothing", VERL_PLATFORM="cpu")
    assert done.returncode == 1
    assert done.stderr.strip().startswith("error: recipes/nothing: there is no config.yaml")
    assert "Traceback" not in done.stderr


def test_help_of_train_explains() -> None:
    assert "VERL_PLATFORM=cpu" in cli("train", "--help").stdout
