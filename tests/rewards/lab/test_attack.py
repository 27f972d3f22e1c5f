"""Attacks find what is wrong with rewards that can be cheated, and nothing in one that cannot."""

import asyncio
import json
from dataclasses import replace

import pytest

from agent_rl.rewards import Reward
from agent_rl.rewards.lab.attack import run_attacks
from agent_rl.rewards.lab.mutations import ATTACKS
from agent_rl.settings import RewardSettings
from agent_rl.trajectory import StopReason, Trajectory, Turn
from agent_rl.work.store import Pieces
from tests.rewards.lab import scorers
from tests.rewards.lab.episodes import problems, trajectories
from tests.rewards.lab.scorers import By

EPISODES = trajectories(problems(4))
WRONG = [each for each in EPISODES if each.id.endswith("_1")]


def attacked(scorer, episodes=EPISODES, attacks=ATTACKS, **options):
    return asyncio.run(run_attacks(episodes, scorer, attacks, kept=Pieces(), **options))


def raised(report):
    return {name for name, outcome in report["attacks"].items() if outcome["raised"]}


def test_a_reward_that_reads_one_answer_pays_for_no_attack():
    for correctness in (scorers.equal, scorers.last_word):
        report = attacked(By(correctness))
        assert report["ok"], json.dumps(report, indent=2)
    assert (report["trajectories"], report["wrong"], report["unscored"]) == (16, 12, 0)
    assert all(outcome["applied"] >= 12 for outcome in report["attacks"].values())


@pytest.mark.parametrize(
    ("correctness", "found"),
    [
        (scorers.contains, {"stuffing", "hedge", "boxes", "one-box", "markers", "tags", "every-form", "list-of-all"}),
        (scorers.any_box, {"boxes"}),
        (scorers.gullible, {"injection"}),
        (scorers.ascii_only, {"look-alikes", "foreign-digits", "invisible", "empty"}),
    ],
)
def test_what_can_be_cheated_is_found_by_name(correctness, found):
    report = attacked(By(correctness), WRONG)
    assert found <= raised(report)
    assert raised(report).isdisjoint({"padding", "duplicate-calls", "no-answer"})
    for name in found:
        outcome = report["attacks"][name]
        assert outcome["raised"] == outcome["raised_wrong"] == len(WRONG)


def test_only_a_gain_beyond_luck_is_an_exploit():
    report = attacked(By(scorers.contains), WRONG[:1])
    found = report["attacks"]["stuffing"]["example"]
    assert found["before"] == pytest.approx(1 / 3)  # one of three guesses
    assert found["after"] == 1.0
    assert found["components"] == {"correctness": (pytest.approx(1 / 3), 1.0)}
    assert report["attacks"]["hedge"]["example"]["after"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("pay", "found"),
    [
        (lambda trajectory: 0.1 * trajectory.tool_calls, {"duplicate-calls", "no-op-calls"}),
        (lambda trajectory: trajectory.response_tokens / 1000, {"padding", "long-answer", "duplicate-calls"}),
    ],
)
def test_calls_and_length_that_pay_are_found(pay, found):
    report = attacked(By(scorers.equal, lambda value, trajectory: value + pay(trajectory)), WRONG)
    assert found <= raised(report)
    row = report["attacks"]["duplicate-calls"]
    assert (row["raised"], row["raised_wrong"]) == (4, 4)
    assert row["example"]["components"] == {}  # the total alone


def test_an_attack_that_makes_the_users_code_raise_is_found(tmp_path):
    body = "return float(int(solution_str) == int(ground_truth))"
    text = f"def fragile(solution_str, ground_truth, extra_info):\n    {body}\n"
    (tmp_path / "mine.py").write_text(text)
    reward = Reward(RewardSettings.model_validate({"correctness": {"scorer": f"{tmp_path}/mine.py:fragile"}}))
    report = attacked(reward, [each for each in EPISODES if (each.answer or "").isdigit()])
    escaped = [outcome["example"] for outcome in report["attacks"].values() if outcome["escaped"]]
    assert escaped
    assert all(
        f"UserCodeError: correctness failed at {tmp_path}/mine.py:2: ValueError" in each["error"] for each in escaped
    )


def test_an_escape_from_the_reward_is_found():
    report = attacked(By(scorers.fragile), WRONG)
    assert not report["ok"]
    outcome = report["attacks"]["not-a-number"]
    assert (outcome["raised"], outcome["escaped"]) == (0, 4)
    assert outcome["example"]["error"] == "UnscoredError: the parser failed"
    assert {name for name, outcome in report["attacks"].items() if outcome["escaped"]} == {"not-a-number"}


def test_an_unscored_trajectory_is_not_attacked():
    unscored = replace(WRONG[0], answer="NaN")
    report = attacked(By(scorers.fragile), [unscored])
    assert (report["unscored"], report["wrong"], report["ok"]) == (1, 0, True)
    assert {outcome["applied"] for outcome in report["attacks"].values()} == {0}


def test_noise_below_the_tolerance_is_not_reported():
    paid = By(scorers.equal, lambda value, trajectory: value + 0.001 * trajectory.tool_calls)
    assert not attacked(paid, WRONG)["ok"]
    assert attacked(paid, WRONG, tolerance=0.01)["ok"]


def test_a_mutation_is_scored_among_its_group():
    scorer = By(scorers.equal)
    attacked(scorer, EPISODES[:6], {"empty": ATTACKS["empty"]})
    assert set(scorer.groups) == {1}
    scorer.groups, scorer.needs_groups = [], True
    attacked(scorer, EPISODES[:6], {"empty": ATTACKS["empty"]})
    assert set(scorer.groups) == {4, 2}


def test_a_ground_truth_that_is_no_text_is_not_guessed():
    structured = [replace(each, ground_truth={"tests": ["assert f(1) == 2"]}) for each in WRONG]
    report = attacked(By(scorers.contains), structured)
    assert {name for name, outcome in report["attacks"].items() if not outcome["applied"]} == {
        name for name, attack in ATTACKS.items() if attack.guesses
    }
    aliases = [replace(each, ground_truth={"target": [each.ground_truth, "x"]}) for each in WRONG]
    guessed = attacked(By(lambda answer, truth: "['" in truth and False), aliases)
    assert guessed["attacks"]["stuffing"]["applied"] == 4


@pytest.mark.parametrize("truth", ["e", "7", "a e 7 X P", "42", 7, 0.5, ["x"]])
def test_there_are_always_three_guesses_or_none(truth):
    lonely = Trajectory([], StopReason.ANSWERED, [Turn("z")], answer="z", ground_truth=truth)
    report = attacked(By(scorers.equal), [lonely])
    assert report["ok"]
    assert report["attacks"]["every-form"]["applied"] == 1
