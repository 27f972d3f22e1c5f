"""Who is dropped: the estimates against samples whose lost rewards are known, and the bound, which always holds."""

import random
from statistics import fmean

import pytest

from agent_rl.trajectory.selection import FATES, SampleFate, fate_means, selection_bias


def test_shares_and_means_by_fate():
    samples = [
        SampleFate("kept", 10, 1, "a", 1.0),
        SampleFate("kept", 30, 3, "b", 0.0),
        SampleFate("lost", 300, 6, "a"),
        SampleFate("lost"),
        SampleFate("stale", 8, 1, "c", 0.5),
    ]
    means = fate_means(samples)
    assert list(means) == list(FATES)
    assert {fate: own["share"] for fate, own in means.items() if own["share"]} == {
        "kept": 0.4, "lost": 0.4, "stale": 0.2,
    }  # fmt: skip
    assert means["lost"] == {"share": 0.4, "tokens": 300, "turns": 6, "prompt_reward": 1.0}
    assert means["kept"]["prompt_reward"] == 0.5
    assert fate_means([])["lost"] == {"share": 0}


def test_the_bias_is_the_kept_mean_minus_the_mean_of_all():
    samples = [
        *[SampleFate("kept", 10, 1, "easy", 1.0)] * 3,
        SampleFate("lost", 50, 5, "easy"),
        *[SampleFate("filtered", 20, 2, "hard", 0.0)] * 4,
    ]
    bias = selection_bias(samples)
    assert bias["tokens"] == 10 - (30 + 50 + 80) / 8
    assert bias["turns"] == 1 - (3 + 5 + 8) / 8
    assert bias["prompt_reward"] == 0.5
    assert bias["reward"] == 0.5  # the lost one counts as 1, the mean of its prompt
    assert bias["reward_bound"] == 1 - 3 / 8  # it may have been 0
    assert selection_bias(samples, (-1.0, 1.0))["reward_bound"] == 1 - 2 / 8


def test_nothing_is_made_up():
    assert selection_bias([]) == {}
    assert selection_bias([SampleFate("lost", 5)]) == {}
    assert selection_bias([SampleFate("kept", 5, 1, "a", 1.0)]) == {
        "tokens": 0, "turns": 0, "reward": 0, "prompt_reward": 0, "reward_bound": 0,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("by", ["prompt", "reward"])
def test_the_bound_holds_and_the_estimate_does_if_failures_depend_on_the_prompt_alone(seed, by):
    """Failures that depend on the reward itself move the mean too, and no stored number shows it: only the bound."""
    chance = random.Random(seed)
    truth, samples = [], []
    for prompt in range(200):
        rate = chance.random()
        for _ in range(8):
            reward = float(chance.random() < rate)
            truth.append(reward)
            lost = chance.random() < 0.05 + 0.6 * (reward if by == "reward" else rate**2)
            samples.append(SampleFate("lost" if lost else "kept", 10, 1, str(prompt), None if lost else reward))
    kept = [own.reward for own in samples if own.fate == "kept"]
    exact, bias = fmean(kept) - fmean(truth), selection_bias(samples)
    assert exact < -0.05
    assert abs(exact) < bias["reward_bound"] < 0.6
    assert (abs(bias["reward"] - exact) < 0.03) == (by == "prompt")
