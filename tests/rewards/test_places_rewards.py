"""One file in its folder is enough for a new scorer, and for a new component; nothing else is edited."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import agent_rl

SCORER = '''
"""Whether an answer is shouted."""

from agent_rl.rewards.scorers.scorer import built_in


@built_in("shout", "my_company/shouts*", inline=True)
def score_shout(solution, ground_truth, extra_info):
    """1.0 for the ground truth in capitals."""
    return float(solution == ground_truth.upper())
'''
COMPONENT = '''
"""`loudness`: how much of the answer is in capitals."""

from agent_rl.rewards.component import Component, Value


class Loudness(Component, kind="loudness"):
    """The share of capitals."""

    async def measure(self, trajectory):
        """The share."""
        return Value(sum(map(str.isupper, trajectory.answer)) / len(trajectory.answer))
'''
USE = """
import asyncio
from agent_rl.rewards import Reward, find_scorer, route
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory

assert route("my_company/shouts_2").name == find_scorer("shout").name == "shout"
reward = Reward(RewardSettings(components={"loud": {"kind": "loudness", "weight": 0.5}}))
trajectory = Trajectory([], StopReason.ANSWERED, answer="YES", ground_truth="yes", data_source="my_company/shouts")
print(asyncio.run(reward.score(trajectory)).total)
"""


def test_a_scorer_and_a_component_are_found_by_being_there(tmp_path: Path) -> None:
    package = tmp_path / "agent_rl"
    shutil.copytree(Path(agent_rl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "rewards" / "scorers" / "shout.py").write_text(SCORER)
    (package / "rewards" / "components" / "loudness.py").write_text(COMPONENT)
    command = [sys.executable, "-c", USE]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("1.5\n", 0), done.stderr


def test_the_rewards_are_imported_without_what_is_heavy() -> None:
    code = "import sys, agent_rl.rewards; print({'torch', 'verl', 'sympy', 'ray', 'math_verify'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
