"""What a run of the CPU version predicts about a run on GPUs."""

from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.evaluation.prediction import predict
from agent_rl.trajectory import Message, Score, StopReason, Trajectory, Turn, trace
from tests.support.cli import printed


def write(file: Path, step: int, rewards: list[list[float]], split: str = "train") -> None:
    """Write a group of episodes for each list of rewards; the last episode of a group is truncated in turn 3."""
    for group, samples in enumerate(rewards):
        for number, reward in enumerate(samples):
            last = number == len(samples) - 1
            turns = [Turn("x", tokens=10), Turn("x", tokens=20)] + [Turn("x", tokens=30)] * last
            stop = StopReason.MAX_TOKENS if last else StopReason.ANSWERED
            info = {"index": group, "split": split, "step": step}
            one = Trajectory([Message("user", "?")], stop, turns, score=Score(reward), info=info)
            one.id = f"{split}{step}-{group}_{number}"
            trace.append(file, one)


@pytest.fixture
def run(tmp_path: Path) -> str:
    """Two steps: at first half of the groups have a signal, then none."""
    write(tmp_path / "trace.jsonl", 1, [[0, 1, 1, 0], [1, 1, 1, 1]])
    write(tmp_path / "trace.jsonl", 2, [[1, 1, 1, 1], [1, 1, 1, 1]])
    write(tmp_path / "trace.jsonl", 2, [[0, 1, 0, 1]] * 9, "test")
    return str(tmp_path)


def test_a_prediction_comes_from_the_training_episodes_the_configuration_and_a_published_run(run: str) -> None:
    predicted = {each.quantity: each for each in predict("search_qa", ["size=3b", "trainer.n_gpus_per_node=4"], run)}
    assert predicted["turns"].value == "2.2, at most 3 in 95% of the episodes"
    assert predicted["turns"].basis == f"16 training episodes in {run}"
    assert predicted["tokens by turn"].value == "10, 20, 30"
    assert predicted["tokens for each turn"].value == str(4096 // 3)
    assert predicted["truncated episodes"].value == "25.0%"
    assert predicted["groups with a signal"].value == "at least 50% in the first step, at least 0% in the last"
    assert predicted["memory of a GPU"].value.endswith("in rollouts")
    assert predicted["steps"].value == "330"
    assert predicted["hours"].value == "54.0"  # 27 hours on twice as many GPUs
    assert "8 x H20" in predicted["hours"].basis


def test_what_cannot_be_known_is_unknown(run: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # without rows
    words = ["quickstart", "--predict", run, "actor_rollout_ref.model.path=a_model"]
    predictions = printed("train", *words)["predictions"]
    values = {each["quantity"]: each["value"] for each in predictions}
    assert values["memory of a GPU"] == values["steps"] == values["hours"] == "unknown"


def test_a_run_without_training_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "trace.jsonl", 0, [[1, 0]], "test")
    with pytest.raises(ConfigError, match="the run has no training episode"):
        list(predict("search_qa", ["size=3b"], str(tmp_path)))
