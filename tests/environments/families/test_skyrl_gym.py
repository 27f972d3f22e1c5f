"""Environments of skyrl-gym: the reward is the sum of their own rewards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import skyrl_gym

from agent_rl.environments import load_environment
from agent_rl.environments.families.skyrl_gym import environment
from agent_rl.errors import ConfigError
from tests.environments.families.playing import Action, Rollouts, play, values

pytestmark = pytest.mark.slow

GOLD: dict[str, list[str]] = {
    "gsm8k": ["#### {}"],
    "gsm8k_multi_turn": ["#### no", "So #### 7", "#### {}"],
    "aime": ["Answer: {}"],
}
WRONG = ["#### 123456789\nAnswer: 123456789"] * 5


def directly(id: str, row: dict[str, Any], messages: Sequence[Action]) -> tuple[float, int]:
    """Play in the package; return the sum of the rewards and the number of turns."""
    extras = {key: row[key] for key in ("reward_spec", "reward_model", "extra_info")}
    world = skyrl_gym.make(id, env_config={}, extras=extras)
    world.init([{"role": "user", "content": row["prompt"]}])
    total = 0.0
    for turn, message in enumerate(messages, 1):
        output = world.step(message)
        total += output["reward"]
        if output["done"]:
            return total, turn
    return total, len(messages)


def gold(id: str, row: dict[str, Any]) -> list[Action]:
    return [message.format(row["reward_spec"]["ground_truth"]) for message in GOLD[id]]


ROLLOUTS: Rollouts = {
    id: lambda row, id=id: (gold(id, row), directly(id, row, gold(id, row))[0])  # type: ignore[misc]
    for id in GOLD
}


@pytest.mark.parametrize("rollout", ["gold", "wrong", "empty"])
@pytest.mark.parametrize("id", GOLD)
def test_reward_is_the_worlds_own(id: str, rollout: str) -> None:
    row = values(f"skyrl_gym:{id}", "test", 1)
    messages = {"gold": gold(id, row), "wrong": WRONG, "empty": [""]}[rollout]
    reward, turns = directly(id, row, messages)
    played = play(f"skyrl_gym:{id}", row, messages[:turns])
    assert played.reward == pytest.approx(reward)
    assert played == play(f"skyrl_gym:{id}", row, messages[:turns])
    assert (reward >= 1.0) == (rollout == "gold")
    assert play(f"skyrl_gym:{id}", row, []).reward == 0.0


def test_turns_have_answers_until_the_end() -> None:
    row = values("skyrl_gym:gsm8k_multi_turn")
    first, *answers, last = play("skyrl_gym:gsm8k_multi_turn", row, WRONG).texts
    assert (first, last) == (None, None)
    assert len(answers) == 4
    assert answers[-1] == "Now provide only the final numeric answer in the exact format: '#### ANSWER'."


def test_no_question_is_in_both_splits() -> None:
    rows = {split: list(environment("gsm8k")().rows(split, 0)) for split in ("train", "test")}
    assert len(rows["train"]) > 400
    assert len(rows["test"]) == 64
    assert not {row["prompt"] for row in rows["train"]} & {row["prompt"] for row in rows["test"]}


def test_a_subclass_takes_skyrls_own_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(
        '{"prompt": [{"role": "user", "content": "6*7?"}], "reward_spec": {"method": "rule", "ground_truth": "42"}, '
        '"extra_info": {"max_turns": 2}, "split": "train"}\n'
    )
    (tmp_path / "mine.py").write_text(
        "from agent_rl.environments.families.skyrl_gym import environment\n\n\n"
        'class Mine(environment("gsm8k_multi_turn")):\n    """Solve it."""\n\n    data = "rows.jsonl"\n'
    )
    target = str(tmp_path / "mine.py:Mine")
    played = play(target, values(target), ["#### 41", "#### 42"])
    assert played.reward == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("id", "problem"),
    [
        ("gsm8kk", "Did you mean 'gsm8k'"),
        ("search", "the problems of 'search' need a database, a server or a download. Choose one of gsm8k"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused(id: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_environment("name", f"skyrl_gym:{id}")
