"""The command as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_rl.data import gsm8k, write_parquet
from agent_rl.errors import ConfigError
from tests.support.cli import shown

ROOT = Path(__file__).parents[2]
RECIPE = "recipes/gsm8k_calculator"


def doctor(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent_rl.cli.main", "doctor", *arguments]
    env = {key: value for key, value in os.environ.items() if key not in ("RAY_ADDRESS", "NNODES")}
    env |= {"COLUMNS": "80", "VERL_PLATFORM": "cpu", "RAY_TMPDIR": "/nowhere", **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=300)


def data(folder: Path) -> list[str]:
    examples = [{"question": f"What is {each}+{42 - each}?", "answer": "It is 42.\n#### 42"} for each in range(8)]
    rows = [gsm8k.to_row(example, "train", index) for index, example in enumerate(examples)]
    write_parquet(rows, folder / "rows.parquet")
    return [f"data.{kind}_files={folder / 'rows.parquet'}" for kind in ("train", "val")]


def test_the_recipe_on_a_cpu_is_healthy(tmp_path: Path, tiny_model: Path) -> None:
    done = doctor(RECIPE, *data(tmp_path), f"actor_rollout_ref.model.path={tiny_model}", "--json")
    findings = json.loads(done.stdout)["findings"]
    groups = dict.fromkeys(finding["group"] for finding in findings)
    assert list(groups) == [
        "installation", "machine", "Ray", "configuration", "data", "tools", "your code", "reward", "chat template"
    ]  # fmt: skip
    crowded = ("host memory", "disk", "/dev/shm")  # what other programs of the machine may have taken
    assert not [finding for finding in findings if finding["status"] != "ok" and finding["subject"] not in crowded]
    assert done.returncode == (0 if json.loads(done.stdout)["ok"] else 1)


def test_what_is_broken_is_listed_all_at_once(tmp_path: Path, tiny_model: Path) -> None:
    (tmp_path / "tools.yaml").write_text("tools: [{name: calculater}]")
    done = doctor(
        RECIPE,
        *data(tmp_path),
        f"actor_rollout_ref.model.path={tiny_model}",
        "data.train_batch_size=9",
        f"actor_rollout_ref.rollout.multi_turn.tool_config_path={tmp_path / 'tools.yaml'}",
        "reward.reward_manager.name=trajectry",
        "trainer.nnode=1",
        NNODES="2",
    )
    assert done.returncode == 1, done.stderr
    lines = [line.split(" problem ")[0].strip() for line in done.stdout.splitlines() if " problem " in line]
    assert set(lines) >= {"nodes", "recipe", "training steps", "tool file", "reward manager"}
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b[" not in done.stdout
    assert "-> Did you mean 'trajectory'?" in done.stdout
    assert done.stdout.rstrip().endswith(": not ready.\n--all shows every finding")


TASK = '''
from agent_rl import Environment


class Door(Environment):
    """Open the door."""

    def rows(self, split, seed):
        for number in range(16):
            yield {"prompt": f"Open door {number} ({split})."}

    def reset(self, **row):
        self.is_open = False

    def open(self) -> str:
        """Open it."""
        self.is_open = True
        return "It is open."

    def get_reward(self):
        return float(self.is_open)
'''


def test_a_task_without_an_expert_needs_a_model(tmp_path: Path, tiny_model: Path) -> None:
    """Nothing is said of the size of a model that nobody has chosen."""
    (tmp_path / "door.py").write_text(TASK)

    def problems(*words: str) -> list[str]:
        found = json.loads(doctor("door.py", *words, "--json", folder=tmp_path).stdout)["findings"]
        return [f"{each['text']} -> {each['remedy']}" for each in found
                if each["status"] == "problem" and each["subject"] != "/dev/shm"]  # fmt: skip

    (only,) = problems()
    assert "Door" in only
    assert "has no solve, which a small model needs" in only
    assert "Define solve(self), or name a model with --model" in only
    assert not problems("--model", str(tiny_model))


def test_without_a_recipe() -> None:
    done = doctor("--all")
    assert "verl plugin" in done.stdout
    assert "chat template" not in done.stdout
    assert done.stdout.rstrip().endswith("ready.")


def test_an_override_without_a_recipe_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^trainer\.nnodes=2: there is an override but no recipe"):
        shown("doctor", "trainer.nnodes=2")
