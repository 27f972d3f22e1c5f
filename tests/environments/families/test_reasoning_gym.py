"""Generators of reasoning-gym: the reward is that of their verifier."""

import pytest
from reasoning_gym import get_score_answer_fn

from agent_rl.environments import load_environment
from agent_rl.environments.families.reasoning_gym import problems
from agent_rl.errors import ConfigError
from tests.environments.families.playing import play, values

pytestmark = pytest.mark.slow

GENERATORS = ["basic_arithmetic", "chain_sum", "gcd", "leg_counting", "letter_counting", "number_sorting"]


@pytest.mark.parametrize("name", GENERATORS)
def test_reward_is_the_verifiers(name: str) -> None:
    row = values(f"reasoning_gym:{name}", "test", 1)
    score = get_score_answer_fn(name)
    gold = str(row["entry"]["answer"])
    rewards = {answer: play(f"reasoning_gym:{name}", row, [answer]).reward for answer in (gold, "wrong", "")}
    assert rewards == {answer: score(answer, row["entry"]) for answer in rewards}
    assert rewards[gold] == 1.0
    assert play(f"reasoning_gym:{name}", row, []).reward == 0.0
    assert play(f"reasoning_gym:{name}", row, [f"It is <answer>{gold}</answer>"]).reward == 1.0


def test_splits_share_no_question_and_the_seed_decides() -> None:
    train, test = (list(problems("chain_sum", split, 0)) for split in ("train", "test"))
    assert not {each["question"] for each in train} & {each["question"] for each in test}
    assert test == list(problems("chain_sum", "test", 0))
    assert test != list(problems("chain_sum", "test", 1))


def test_an_unknown_generator_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="'chain_sum'"):
        load_environment("name", "reasoning_gym:chain_sums")
