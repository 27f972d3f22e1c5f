"""The recipe `verifiers` trains two steps: verifiers' own server plays the episodes, with a tool and its rewards."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent_rl.agents.sessions.program import FunctionWorker
from agent_rl.cli.main import app
from agent_rl.data import read_parquet
from agent_rl.environments.install import FOLDER, python_of
from agent_rl.errors import ConfigError
from agent_rl.trajectory import Trajectory, trace
from tests.e2e.taught import teach
from tests.e2e.training import ROOT, train_recipe
from tests.environments.families.served_family import needs

pytestmark = [pytest.mark.engine, pytest.mark.recipes, needs("verifiers"), pytest.mark.timeout(900)]

RECIPE = ROOT / "recipes/verifiers"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": %s, "b": %s}}\n</tool_call>'
RECORDER = f"""
import json, pathlib, sys

sys.path.insert(0, {str(RECIPE)!r})
import episodes

async def run(**arguments):
    episode = await episodes.run(**arguments)
    file = pathlib.Path(__file__).parent / "episodes" / f"{{episode.id}}.json"
    file.write_text(json.dumps(episode.to_record()))
"""
"""The recipe's function, which also keeps what verifiers recorded."""


def taught_model(folder: Path, questions: list[str]) -> None:
    """Teach a tiny model to ask the tool for the sum, for another one, or to guess."""
    draw, conversations = random.Random(0), []
    for question in questions:
        a, b = question.removeprefix("What is ").removesuffix("?").split("+")
        for first, answer in (
            (CALL % (a, b), int(a) + int(b)),
            (CALL % (b, b), 2 * int(b)),
            (None, draw.randint(20, 198)),
        ):
            said = [("user", question), *([("assistant", first), ("tool", str(answer))] if first else [])]
            said.append(("assistant", f"It is {answer}"))
            conversations.append([{"role": role, "content": text} for role, text in said])
    print("nats per token", teach(folder, conversations, steps=400))


def of_ours(trajectory: Trajectory) -> tuple[int, list[int], float | None]:
    """The task's number, the number of sampled tokens in each turn, and the reward."""
    task = json.loads(trajectory.extra_info["task"])
    return task["idx"], [turn.tokens for turn in trajectory.turns], trajectory.verdict


def of_verifiers(record: Path) -> tuple[int, list[int], float]:
    """The same, as verifiers recorded it."""
    (played,) = json.loads(record.read_text())["traces"]
    reward = sum(each["score"] * each["weight"] for each in played["rewards"].values())
    return played["task"]["data"]["idx"], [call["usage"]["completion_tokens"] for call in played["calls"]], reward


@pytest.mark.usefixtures("run_processes")
def test_only_one_seat_may_be_the_policy(tmp_path: Path) -> None:
    shutil.copytree(RECIPE, tmp_path / "mine")
    seat = 'harness.id = "null"\nruntime.type = "subprocess"\n'
    seats = f"[env.assistant]\n{seat}[env.user]\n{seat}"
    (tmp_path / "mine/env.toml").write_text(f'[env]\nid = "user-sim"\ntaskset.id = "sums"\n{seats}')
    function = f"{tmp_path}/mine/episodes.py:run"
    with pytest.raises(ConfigError, match=r"not \['assistant', 'user'\]: set env.SEAT.model"):
        FunctionWorker(str(python_of("verifiers")), function, os.environ, 60)
    with (tmp_path / "mine/env.toml").open("a") as file:
        file.write('model = "user"\n')
    FunctionWorker(str(python_of("verifiers")), function, os.environ, 60).close()


@pytest.mark.usefixtures("run_processes")
def test_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = python_of("verifiers")
    tasks = subprocess.run([str(python), str(RECIPE / "episodes.py"), "12"], capture_output=True, check=True)
    (tmp_path / "tasks.jsonl").write_bytes(tasks.stdout)
    words = ["--style", "environment", "--data_source", "verifiers/sums", "--test_share", "0.3"]
    convert = ["data", "convert", str(tmp_path / "tasks.jsonl"), "--prompt", "prompt", "--out", str(tmp_path), *words]
    assert CliRunner().invoke(app, [*convert, "--agent_name", "gateway_agent"]).exit_code == 0
    rows = {split: read_parquet(tmp_path / f"{split}.parquet")[:count] for split, count in (("train", 8), ("test", 2))}
    taught_model(tmp_path / "model", [row["prompt"][0]["content"] for its in rows.values() for row in its])
    (tmp_path / "episodes").mkdir()
    (tmp_path / "recorder.py").write_text(RECORDER)
    monkeypatch.setenv(FOLDER, str(python.parents[2]))
    logged = train_recipe(
        "verifiers",
        tmp_path,
        rows,
        f"actor_rollout_ref.model.path={tmp_path}/model",
        f"agent_rl.gateway.function={tmp_path}/recorder.py:run",
        "actor_rollout_ref.rollout.agent.num_workers=1",
    )
    assert [logged[step]["agent/unscored"] for step in (1, 2)] == [0, 0]
    assert all(logged[step]["training/rollout_probs_diff_mean"] < 1e-5 for step in (1, 2))

    seen = list(trace.read(tmp_path / "trace.jsonl"))
    assert not [each.error or each.info.get("program") for each in seen if each.error or each.info.get("program")]
    theirs = sorted(map(of_verifiers, (tmp_path / "episodes").iterdir()))
    assert sorted(map(of_ours, seen)) == theirs
    assert all(each.score.total == each.verdict for each in seen if each.score)
    rewards = {reward for _, _, reward in theirs}
    assert 1.25 in rewards
    assert len(rewards) > 1

    trained = [each for each in seen if each.info["split"] == "train"]
    names = [name for batch in trace.read_batches(tmp_path / "trace.jsonl") for name in batch.names]
    assert sorted(names) == sorted(f"{each.id}_0" for each in trained)
    assert len(trained) == 2 * 4 * 2
    tokens = trace.TokenReader(tmp_path / "trace.jsonl")
    for each in trained:
        kept = tokens.read(str(each.id))
        assert kept is not None
        (sequence,) = kept["sequences"]
        assert sum(sequence["mask"]) == sum(turn.tokens for turn in each.turns)
    assert any(len(each.turns) == 2 and each.turns[0].results for each in trained)
