"""Generators of reasoning-gym: the reward is that of their verifier."""

from typing import Any

import pytest
from reasoning_gym import get_score_answer_fn

from agent_rl.environments import load_environment
from agent_rl.environments.families.reasoning_gym import problems
from agent_rl.errors import ConfigError
from tests.environments.families.playing import Action, Rollouts, episode, values

pytestmark = pytest.mark.slow

GENERATORS = ["basic_arithmetic", "chain_sum", "gcd", "leg_counting", "letter_counting", "number_sorting"]


def gold(name: str, row: dict[str, Any]) -> tuple[list[Action], float]:
    answer = str(row["entry"]["answer"])
    return [answer], get_score_answer_fn(name)(answer, row["entry"])


ROLLOUTS: Rollouts = {name: lambda row, name=name: gold(name, row) for name in GENERATORS}  # type: ignore[misc]


async def rewards(name: str) -> None:
    row, target = values(f"reasoning_gym:{name}", "test", 1), f"reasoning_gym:{name}"
    ((answer,), _), score = gold(name, row), get_score_answer_fn(name)
    found = {each: (await episode(target, row, [each])).reward for each in (answer, "wrong", "")}
    assert found == {each: score(each, row["entry"]) for each in found}, name
    assert found[answer] == 1.0
    assert (await episode(target, row, [])).reward == 0.0
    assert (await episode(target, row, [f"It is <answer>{answer}</answer>"])).reward == 1.0


async def test_reward_is_the_verifiers() -> None:
    for name in GENERATORS:
        await rewards(name)


def test_splits_share_no_question_and_the_seed_decides() -> None:
    train, test = (list(problems("chain_sum", split, 0)) for split in ("train", "test"))
    assert not {each["question"] for each in train} & {each["question"] for each in test}
    assert test == list(problems("chain_sum", "test", 0))
    assert test != list(problems("chain_sum", "test", 1))


def test_an_unknown_generator_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="'chain_sum'"):
        load_environment("name", "reasoning_gym:chain_sums")
