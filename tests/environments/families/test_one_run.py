"""Many environments train two steps in one run: those of the families that are installed, and TRL's idioms.

A row's column `environment` selects its class.
"""

import json
import math
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agent_rl.agents.react import ReactFormat
from agent_rl.data import read_parquet, write_parquet
from agent_rl.environments import load_environment
from agent_rl.environments.install import FOLDER, PACKAGES, python_of
from agent_rl.environments.kind import row_values
from agent_rl.errors import ConfigError
from agent_rl.launch.task import load_task, task_recipe
from agent_rl.trajectory.run_files import read_metrics
from tests.e2e.taught import teach
from tests.environments.families.playing import Action, play
from tests.environments.test_trl import FOLDER as IDIOMS_FOLDER
from tests.environments.test_trl import play as play_script
from tests.environments.trl.reference import IDIOMS

pytestmark = [pytest.mark.recipes, pytest.mark.engine, pytest.mark.trainer]

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""Two rows of each environment."""
Conversation = list[dict[str, Any]]

MULTI_TURN: dict[str, Action] = {
    "bfcl:GorillaFileSystem": ("ls", {}),
    "bfcl:TradingBot": ("get_account_info", {}),
    "bfcl:TravelAPI": ("list_all_airports", {}),
    "bfcl:VehicleControlAPI": ("check_tire_pressure", {}),
    "gymnasium:BabyAI-GoToRedBall-v0": ("act", {"action": "forward"}),
    "gymnasium:Blackjack-v1": ("act", {"action": "hit"}),
    "gymnasium:CartPole-v1": ("act", {"action": 1}),
    "gymnasium:CliffWalking-v1": ("act", {"action": "up"}),
    "gymnasium:FrozenLake-v1": ("act", {"action": "down"}),
    "gymnasium:Taxi-v4": ("act", {"action": "north"}),
    "nemo_gym:blackjack": "<action>hit</action>",
    "nemo_gym:example_session_state_mgmt": ("increment_counter", {"count": 2}),
    "openenv:echo": ("act", {"message": "hello"}),
    "skyrl_gym:gsm8k_multi_turn": "#### 4",
    "tau2:mock": ("get_users", {}),
    "textarena:2048-v0-ultra-easy": "[right]",
    "textarena:Blackjack-v0": "[hit]",
    "textarena:FrozenLake-v0": "[right]",
    "textarena:GuessTheNumber-v0": "[7]",
    "textarena:Mastermind-v0": "[1 2 3 4]",
    "textarena:Minesweeper-v0-small": "[1 1]",
    "textarena:Sudoku-v0-very-easy": "[1 1 1]",
    "textarena:TowerOfHanoi-v0": "[A C]",
}
"""What the model is taught to do in each environment, in every turn."""
SINGLE_TURN: dict[str, Action] = {
    "reasoning_gym:basic_arithmetic": "4",
    "reasoning_gym:chain_sum": "4",
    "reasoning_gym:gcd": "4",
    "reasoning_gym:leg_counting": "4",
    "skyrl_gym:aime": "Answer: 4",
    "skyrl_gym:gsm8k": "#### 4",
}
TAUGHT = MULTI_TURN | SINGLE_TURN
END = 500
"""Number of characters at the end of a message that the model is taught with."""


def trained(
    folder: Path, targets: Sequence[str], conversations: Callable[[Rows], Iterable[Conversation]], *words: str
) -> dict[str, list[dict[str, Any]]]:
    """Train two steps on two rows of each environment, each with two samples; return the trajectories of each.

    Args:
        folder: the working directory.
        targets: the environments.
        conversations: returns what a tiny model is taught before.
        words: overrides.
    """
    recipe = task_recipe(",".join(targets))
    of = {load_task(target).name: target for target in targets}
    every: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_parquet(recipe / "train.parquet"):
        every[of[row["extra_info"]["environment"]]].append(row)
    rows = {target: (its * 2)[:2] for target, its in every.items()}
    write_parquet([row for its in rows.values() for row in its], recipe / "train.parquet")
    print("nats per token", teach(folder / "model", list(conversations(rows)), steps=150, max_positions=32768))
    size = len(targets)
    command = [str(Path(sys.executable).with_name("agent-rl")), "train", str(recipe), "size=own_model"]
    command += [f"actor_rollout_ref.model.path={folder}/model", f"data.train_batch_size={size}"]
    command += [f"actor_rollout_ref.actor.ppo_mini_batch_size={size}", "actor_rollout_ref.rollout.n=2"]
    command += ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1", "trainer.val_before_train=False"]
    command += ["actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1", "trainer.total_training_steps=2"]
    command += ["trainer.test_freq=-1", "trainer.save_freq=-1", "trainer.experiment_name=run"]
    command += ["actor_rollout_ref.rollout.multi_turn.max_assistant_turns=4"]
    subprocess.run([*command, *words], env={**os.environ, "VERL_PLATFORM": "cpu"}, check=True)
    assert [step["step"] for step in read_metrics(folder / "outputs/run")] == [1, 2]
    trace = [json.loads(line) for line in (folder / "outputs/run/trace.jsonl").read_text().splitlines()]
    played: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for trajectory in trace:
        played[of[trajectory["data_source"]]].append(trajectory)
    assert {target: len(its) for target, its in played.items()} == dict.fromkeys(targets, 4)
    return played


def taught_turns(rows: Rows) -> Iterable[Conversation]:
    """Yield each environment's turn, after the ends of the messages of its prompt."""
    for target in rows:
        row, kind, action = rows[target][0], load_environment("it", target), TAUGHT[target]
        (text,), *_ = play(target, row_values(row), [])
        *_, system, user = ReactFormat().prompt(row["prompt"], kind.specs)
        shown = (system["content"], user["content"] + (f"\n\n{text}" if text else ""))
        turn = f"Thought: I know.\nFinal Answer: {action}"
        if isinstance(action, tuple):
            turn = f"Thought: I act.\nAction: {action[0]}\nAction Input: {json.dumps(action[1])}"
        texts = zip(("system", "user", "assistant"), (*(text[-END:] for text in shown), turn), strict=True)
        yield [{"role": role, "content": text} for role, text in texts]


def is_made(family: str) -> bool:
    try:
        return python_of(family).is_file()
    except ConfigError:
        return False


def test_two_steps(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the Pythons of some families, the others train; then the test is reported as skipped."""
    families = {target.partition(":")[0] for target in TAUGHT}
    missing = sorted(family for family in families & PACKAGES.keys() if not is_made(family))
    targets = [target for target in TAUGHT if target.partition(":")[0] not in missing]
    families = families.difference(missing)
    monkeypatch.setenv(FOLDER, str(Path(os.environ.get(FOLDER) or "outputs/environments").absolute()))
    if "openenv" in families:
        subprocess.run([str(python_of("openenv").with_name("openenv")), "init", "echo"], cwd=here, check=True)
    played = trained(here, targets, taught_turns)
    for target, its in played.items():
        assert len({each["row"]["extra_info"]["index"] for each in its}) == 2, target
        assert all(each["error"] is None and math.isfinite(each["score"]["total"]) for each in its), target
    worked = {target: sum(map(worked_turns, its)) for target, its in played.items()}
    print(worked)
    assert sum(worked.get(target, 0) > 0 for target in MULTI_TURN) >= 10
    if missing:
        pytest.skip(f"trained {len(targets)} environments of {len(families)} families; not made: {', '.join(missing)}")
    assert len(families) >= 5
    assert len(targets) >= 24


def test_two_steps_of_trls_idioms(here: Path) -> None:
    """All but `image_blocks`: its observations are images, and no model that reads images trains on a CPU."""
    idioms = {str(IDIOMS_FOLDER / f"{idiom}.py"): idiom for idiom in IDIOMS if idiom != "image_blocks"}

    def scripts(rows: Rows) -> Iterable[Conversation]:
        for target, its in rows.items():
            script = import_module(f"tests.environments.trl.{idioms[target]}").SCRIPT
            for row in its:
                index = row["extra_info"]["index"] % len(script)
                yield play_script(target, row, script[index], name=idioms[target])[1].messages

    played = trained(here, list(idioms), scripts, "data.max_response_length=1024")
    for target, its in played.items():
        scored = [each for each in its if each["score"] is not None]
        assert all(each["error"] is None and math.isfinite(each["score"]["total"]) for each in scored), target
        assert len(scored) == 4 or idioms[target] == "echo"  # its get_reward returns None without a call
    worked = {idioms[target]: sum(map(worked_turns, its)) for target, its in played.items()}
    print(worked)
    assert min(worked.values()) > 0


def worked_turns(trajectory: dict[str, Any]) -> int:
    """The number of turns whose call, or whose message, the environment answered."""
    turns = trajectory["turns"]
    called = sum(result["status"] == "ok" for turn in turns for result in turn["results"])
    return called + sum(bool(turn["observation"]) and not turn["calls"] and not turn["malformed"] for turn in turns)
