"""`agent-rl reward score` and `attack` as a user runs them, on trajectories of real episodes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agent_rl.cli.main import app
from agent_rl.errors import ConfigError
from agent_rl.trajectory import trace
from tests.rewards.lab.episodes import problems, trajectories

ROOT = Path(__file__).parents[2]

GULLIBLE = """
from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, Value

class Contains(Component):
    async def measure(self, trajectory):
        return Value(float(trajectory.ground_truth in (trajectory.answer or "")))

class Absent(Component):
    async def measure(self, trajectory):
        if trajectory.id == "1_2":
            raise UnscoredError("the judge is away")
        return Value(1.0)

def shout(trajectory):
    from agent_rl.rewards.lab.editing import with_answer
    return with_answer(trajectory, trajectory.ground_truth + "!")
"""


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Eight problems with four samples each."""
    path = tmp_path / "t.jsonl"
    for trajectory in trajectories(problems(8)):
        trace.append(path, trajectory)
    (tmp_path / "mine.py").write_text(GULLIBLE)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["reward", *map(str, words)])


def data(*words: object) -> Any:
    result = run(*words, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout)


def test_score_scores_by_the_configuration(stored: Path) -> None:
    out = stored.parent / "made/scored.jsonl"
    found = data("score", stored, "agent_rl.reward.format.weight=0", "--out", out)
    assert found["all"]["scored"] == 32
    assert found["all"]["components"]["correctness"]["mean"] == 0.5
    assert found["all"]["components"]["format"]["mean"] == pytest.approx(-1 / 6)
    scored = list(trace.read(out))
    assert [each.id for each in scored] == [each.id for each in trace.read(stored)]
    for each in scored:
        assert each.score
        assert each.score.total == each.score.components["correctness"]
    table = run("score", stored)
    assert table.exit_code == 0
    assert "correctness" in table.stdout


def test_what_cannot_be_scored_is_counted_and_kept(stored: Path) -> None:
    out = stored.parent / "scored.jsonl"
    kind = f"{stored.parent}/mine.py:Absent"
    found = data("score", stored, f"agent_rl.reward.components.judge.kind={kind}", "--out", out)
    assert (found["all"]["scored"], found["all"]["unscored"]) == (31, 1)
    (missing,) = [each for each in trace.read(out) if each.score is None]
    assert missing.id == "1_2"
    assert "the judge is away" in str(missing.error)
    assert list(found["errors"].values()) == [1]
    assert "1 unscored: " in run("score", out, f"agent_rl.reward.components.judge.kind={kind}").stdout


@pytest.mark.trainer
def test_a_recipe_and_a_file_say_the_same(stored: Path) -> None:
    file = stored.parent / "reward.yaml"
    own = "efficiency: {penalty: 0.3, gate: correctness >= 1}, format: {weight: 0.2}"  # those of the recipe
    reward = f"{{{own}, overlong: {{penalty: 1}}}}"
    file.write_text(f"agent_rl: {{reward: {reward}}}\ndata: {{max_response_length: 2048}}\n")
    by_file = data("score", stored, "--config", file)
    words = ["agent_rl.reward.efficiency.penalty=0.3", "agent_rl.reward.overlong.penalty=1"]
    for recipe in (
        "gsm8k_calculator",
        ROOT / "recipes/gsm8k_calculator",
        ROOT / "recipes/gsm8k_calculator/config.yaml",
    ):
        assert data("score", stored, *words, "--config", recipe) == by_file


def test_score_asks_the_custom_function_of_the_configuration(stored: Path) -> None:
    path = stored.parent / "custom.py"
    path.write_text(
        "def mine(ground_truth, solution_str, bonus, **_):\n    return bonus * (ground_truth in solution_str)\n"
    )
    function = f"{{path: {path}, name: mine, reward_kwargs: {{bonus: 0.5}}}}"
    (stored.parent / "run.yaml").write_text(f"reward: {{custom_reward_function: {function}}}\n")
    found = data("score", stored, "--config", stored.parent / "run.yaml")
    assert found["all"]["scored"] == 32
    assert 0 < found["all"]["components"]["correctness"]["mean"] <= 0.5
    words = ["score", stored, "--config", stored.parent / "other.yaml"]
    (stored.parent / "other.py").write_text("def mine(x, y, z, a, b):\n    return 1\n")
    (stored.parent / "other.yaml").write_text(
        f"reward: {{custom_reward_function: {{path: {stored.parent}/other.py, name: mine}}}}\n"
    )
    assert isinstance(run(*words).exception, ConfigError)


def test_the_reward_of_the_recipe_survives_every_attack(stored: Path) -> None:
    found = data("attack", stored, "data.max_response_length=2048")
    assert found["ok"], json.dumps({name: row for name, row in found["attacks"].items() if row["example"]}, indent=2)
    assert (found["trajectories"], found["wrong"], found["unscored"]) == (32, 16, 0)
    assert min(row["applied"] for row in found["attacks"].values()) >= 30
    assert run("attack", stored).exit_code == 0


def test_an_attack_that_raises_the_reward_fails_the_command(stored: Path) -> None:
    words = [
        f"agent_rl.reward.components.seen.kind={stored.parent}/mine.py:Contains",
        "agent_rl.reward.format.weight=0",
    ]
    found = data("attack", stored, *words, "--limit", 8)
    assert not found["ok"]
    assert found["attacks"]["stuffing"]["raised_wrong"] == 4
    assert "seen" in found["attacks"]["stuffing"]["example"]["components"]
    shown = run("attack", stored, *words, "--only", "stuffing")
    assert shown.exit_code == 1
    assert "The answer is " in shown.stdout
    assert run("attack", stored, *words, "--only", "padding").exit_code == 0


def test_an_attack_from_a_file_is_run_by_its_name(stored: Path) -> None:
    shout = f"{stored.parent}/mine.py:shout"
    found = data("attack", stored, "--attack", shout, "--only", "shout")
    assert list(found["attacks"]) == ["shout"]
    assert found["attacks"]["shout"]["raised"] == 16


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("rules: {}\n")
    words = ["serve", "--config", str(tmp_path / "service.yaml")]
    assert "other machines can reach '0.0.0.0'" in str(run(*words, "host=0.0.0.0").exception)
    hide = "import sys; sys.modules['fastapi'] = None; from agent_rl.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", hide, "reward", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "pip install 'agent-rl[service]'" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["score", "{file}", "trainer.nnodes=2"], "not a setting of the reward"),
        (["score", "{file}", "agent_rl.reward.eficiency.penalty=1"], "Did you mean 'efficiency'"),
        (["score", "{file}", "--config", "nowhere.yaml"], "no such file"),
        (["score", "{file}", "--config", "gsm8k_calc"], "Did you mean 'gsm8k_calculator'"),
        (["attack", "{file}", "--only", "stufing"], "Did you mean 'stuffing'"),
        (["attack", "{file}", "--attack", "nowhere.py:x"], "there is no file"),
    ],
)
def test_what_is_wrong_is_said(stored: Path, words: list[str], problem: str) -> None:
    result = run(*[word.format(file=stored) for word in words])
    assert isinstance(result.exception, ConfigError)
    assert problem in str(result.exception)
