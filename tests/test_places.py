"""Adding one of a kind takes one new file (a tool: one and a YAML entry), and no edit of another.

Each entry of `KINDS` has the files that are written into a copy of the package, and a program that uses them there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


class Kind(NamedTuple):
    files: dict[str, str]
    """Path within the copy, and text."""
    program: str
    """Runs in another folder; its output must end with `works`."""


KINDS = {
    "agent": Kind(
        {
            "agent_rl/agents/shout.py": '''
"""An agent that shouts its answer."""

from agent_rl.agents.episode.agent import Agent
from agent_rl.agents.episode.format import Step, TextFormat


class ShoutFormat(TextFormat):
    default_instructions = "Answer in capitals."

    def parse(self, text, tools):
        return Step(answer=text.lower())


AGENT = Agent("shout_agent", lambda settings, limits: ShoutFormat())
'''
        },
        """
import asyncio
from types import SimpleNamespace

from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.registry import make_loop
from agent_rl.settings import AgentRLSettings
from agent_rl.verl_adapter import loops

loop = make_loop("shout_agent", EpisodeSetup(AgentRLSettings()))
row = {"raw_prompt": [{"role": "user", "content": "6*7?"}], "data_source": "gsm8k"}
trajectory = asyncio.run(loop.run_row(row, loop.conversation(ScriptedPolicy(["FORTY-TWO"])), loop.format()))
assert (trajectory.agent, trajectory.answer) == ("shout_agent", "forty-two")
verls = SimpleNamespace(_agent_loop_registry={})
loops.install(verls)
assert verls._agent_loop_registry["shout_agent"] == {"_target_": "agent_rl.verl_adapter.loops.ShoutAgentLoop"}
print("works")
""",
    ),
    "check of the doctor": Kind(
        {
            "agent_rl/launch/doctor/checks/weather.py": '''
"""Checks of the weather."""

from agent_rl.launch.doctor.case import Case
from agent_rl.preflight.check import Finding, Needs, check, problem


@check("machine", "weather", Needs.MACHINE)
def rain(case: Case) -> Finding:
    """It does not rain."""
    return problem("it rains", "Take an umbrella")
'''
        },
        """
from agent_rl.launch.doctor.diagnosis import diagnose
from agent_rl.launch.doctor.table import to_dict

(finding,) = [each for each in to_dict(diagnose())["findings"] if each["subject"] == "weather"]
assert (finding["group"], finding["status"], finding["remedy"]) == ("machine", "problem", "Take an umbrella")
print("works")
""",
    ),
    "command": Kind(
        {
            "agent_rl/cli/greet.py": '''
"""The command `agent-rl greet`."""

import typer

app = typer.Typer(rich_help_panel="start", add_completion=False)


@app.command()
def greet(name: str) -> None:
    """Greet somebody."""
    print(f"Hello, {name}")
'''
        },
        """
from typer.testing import CliRunner
from agent_rl.cli.main import app

assert CliRunner().invoke(app, ["greet", "Ada"]).stdout == "Hello, Ada\\n"
assert "start greet Greet somebody" in " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
print("works")
""",
    ),
    "recipe": Kind(
        {
            "recipes/mine/config.yaml": """
hydra:
  searchpath: [pkg://verl.trainer.config, pkg://agent_rl.config]
defaults:
  - agent
  - _self_
  - override algo: rloo
data:
  train_files: rows.parquet
  val_files: rows.parquet
trainer:
  experiment_name: mine
"""
        },
        """
from pathlib import Path
import agent_rl
from agent_rl.launch.training import dry_run

composed, notes = dry_run(str(Path(agent_rl.__file__).parents[1] / "recipes/mine"))
assert "adv_estimator: rloo" in composed
assert "default_agent_loop: react_agent" in composed
assert len(notes) == 1, notes
print("works")
""",
    ),
    "scorer": Kind(
        {
            "agent_rl/rewards/scorers/shout.py": '''
"""Whether an answer is shouted."""

from agent_rl.rewards.scorers.scorer import built_in


@built_in("shout", "my_company/shouts*", inline=True)
def score_shout(solution, ground_truth, extra_info):
    """1.0 for the ground truth in capitals."""
    return float(solution == ground_truth.upper())
'''
        },
        """
from agent_rl.rewards import compute_score, find_scorer, route

assert route("my_company/shouts_2") is find_scorer("shout")
assert compute_score("my_company/shouts", "YES", "yes") == 1.0
print("works")
""",
    ),
    "component": Kind(
        {
            "agent_rl/rewards/components/loudness.py": '''
"""`loudness`: how much of the answer is in capitals."""

from agent_rl.rewards.component import Component, Value


class Loudness(Component, kind="loudness"):
    """The share of capitals."""

    async def measure(self, trajectory):
        """The share."""
        return Value(sum(map(str.isupper, trajectory.answer)) / len(trajectory.answer))
'''
        },
        """
import asyncio
from agent_rl.rewards import Reward
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory

reward = Reward(RewardSettings(components={"loud": {"kind": "loudness", "weight": 0.5}}))
trajectory = Trajectory([], StopReason.ANSWERED, answer="7 X", ground_truth="7", data_source="gsm8k")
assert asyncio.run(reward.score(trajectory)).components["loud"] == 1 / 3
print("works")
""",
    ),
    "world": Kind(
        {
            "agent_rl/data/worlds/echo.py": '''
"""Words to be said in capitals."""

from agent_rl.data.rows import make_row
from agent_rl.data.worlds.world import World


def write(folder, seed, counts):
    return {split: [make_row(question=f"Shout {split} {n}", data_source="agent_rl/echo", ground_truth="A", split=split,
                             index=n) for n in range(count)] for split, count in counts.items()}


def oracle(row, rng):
    yield "Thought: Shout.\\nFinal Answer: " + row["reward_model"]["ground_truth"]


WORLD = World("echo", write, {"oracle": oracle})
'''
        },
        """
import random
from pathlib import Path
from agent_rl.data.worlds import load_world, world_names
from agent_rl.settings.sections import ColdStartSettings

assert "echo" in world_names()
settings = ColdStartSettings(world="echo", stages=[{"mix": {"oracle": 1}, "steps": 1}])
world = load_world(settings.world)
rows = world.write(Path("."), 0, {"test": 3, "train": 2})
assert [len(each) for each in rows.values()] == [3, 2]
assert next(world.habits["oracle"](rows["test"][0], random.Random(0))).endswith("Answer: A")
print("works")
""",
    ),
    "tool": Kind(
        {
            "agent_rl/tools/builtin/shout.py": '''
"""`shout`: text in capitals."""

from agent_rl.tools import Tool


class Shout(Tool):
    """Returns a text in capitals."""

    name = "shout"
    description = "Returns the text in capitals."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    async def call(self, arguments):
        return arguments["text"].upper()
''',
            "tool_configs/shout.yaml": """
tools:
  - name: shout
    timeout_s: 5
""",
        },
        """
from pathlib import Path
from typer.testing import CliRunner
import agent_rl
from agent_rl.cli.main import app

file = Path(agent_rl.__file__).parents[1] / "tool_configs/shout.yaml"
assert "text in capitals." in CliRunner().invoke(app, ["tools", "list"]).stdout
checked = CliRunner().invoke(app, ["tools", "check", str(file)])
assert "shout(text" in checked.stdout, checked.output
called = CliRunner().invoke(app, ["tools", "call", str(file), "shout", '{"text": "hello"}'])
assert called.stdout == "HELLO\\n", called.output
print("works")
""",
    ),
}


@pytest.fixture(scope="module")
def copied_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "agent_rl", folder / "agent_rl", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_one_of_a_kind_works_without_an_edit_of_another_file(copied_package: Path, tmp_path: Path, kind: str) -> None:
    for name, text in KINDS[kind].files.items():
        path = copied_package / name
        assert not path.exists(), "only new files are written"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", KINDS[kind].program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(copied_package)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith("works\n")
