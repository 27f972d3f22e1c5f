"""A reward in words and numbers; for every recipe, tests/recipes compares the words with what is paid."""

from typing import Any

import pytest

from agent_rl.rewards import Reward
from agent_rl.rewards.formula import GIVING_UP, HONEST_WORK, formulas, payments
from agent_rl.settings import BudgetSettings, RewardSettings


def made(section: dict[str, Any], **given: Any) -> Reward:
    return Reward(RewardSettings.model_validate(section), max_response_tokens=1000, **given)


def formula(section: dict[str, Any], **given: Any) -> str:
    (text,) = formulas(made(section, **given)).values()
    return " ".join(text.removeprefix("reward = ").split())


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "1 x correctness (by the row's data source, or its user)"),
        ({"correctness": {"scorer": "qa_em", "weight": 0.3}}, "0.3 x correctness (by qa_em)"),
        ({"correctness": {"scorer": "none"}}, "0"),
        ({"reward_api": "http://127.0.0.1:1/get"}, "1 x correctness (by the reward service)"),
        (
            {"correctness": {"weight": 0}, "efficiency": {"per_error": 0.1, "per_1000_tokens": 0.25, "penalty": 0}},
            "1 x efficiency (-0.1 for each failed call, -0.25 for each 1,000 tokens, at least -0.5)",
        ),
        (
            {"correctness": {"weight": 0}, "format": {"turns": 4, "gate": "efficiency > -0.2"}},
            "0.2 x format (-1/4 for each malformed turn, at least -1), only where efficiency > -0.2",
        ),
        (
            {"correctness": {"weight": 0}, "overlong": {"penalty": 1.5}},
            "1 x overlong (0 up to 800 tokens, falling to -1.5 at 1000)",
        ),
        (
            {
                "correctness": {"weight": {"start": 0, "end": 0.5, "to_step": 9}, "clip": [0, 0.9]},
                "components": {"steps": {"kind": "tool_rewards", "weight": -2, "normalize": [1, 5]}},
            },
            "(0 to 0.5 from step 0 to 9) x correctness (by the row's data source, or its user, within 0 and "
            "0.9) + -2 x steps (by tool_rewards, scaled so that 1 is 0 and 5 is 1)",
        ),
        (
            {"correctness": {"normalize": "group", "scorer": "qa_em"}},
            "1 x correctness (by qa_em, its z-score in the group)",
        ),
    ],
)
def test_each_part_has_its_words(section: dict[str, Any], words: str) -> None:
    assert formula(section) == words


def test_a_custom_reward_function_gives_correctness() -> None:
    assert (
        formula({"correctness": {"scorer": "qa_em"}}, judged=True) == "1 x correctness (by the custom reward function)"
    )


def test_a_users_combination_has_every_value() -> None:
    text = formula({"combine": "math.fsum", "correctness": {"scorer": "qa_em"}})
    assert text.startswith(
        "math.fsum of these values, their weights, and the trajectory: 1 x correctness (by qa_em) 0 x eff"
    )


def test_data_sources_have_formulas_of_their_own() -> None:
    reward = made(
        {"format": {"turns": 2}, "per_data_source": {"chat*": {"correctness": {"weight": 3}, "format": {"weight": 0}}}}
    )
    assert {pattern: text[:24] for pattern, text in formulas(reward).items()} == {
        "chat*": "reward = 3 x correctness",
        "*": "reward = 1 x correctness",
    }
    assert ["format" in text for text in formulas(reward).values()] == [False, True]
    pays = payments(reward, 5, BudgetSettings())
    assert (pays["chat*"]["right at once"], pays["*"]["right at once"]) == ((3.0, {}), (1.0, {}))
    assert [round(pays[pattern]["malformed"][0], 3) for pattern in pays] == [0.0, -0.2]


def test_behaviours_are_paid_by_the_reward_itself() -> None:
    section: dict[str, Any] = {
        "efficiency": {"free_calls": 2},
        "format": {"weight": 0.3, "turns": 3},
        "components": {"steps": {"kind": "tool_rewards", "weight": 0.5, "gate": "correctness >= 1"}},
    }
    pays = payments(made(section), 6, BudgetSettings())["*"]
    assert {name: (round(number, 6), others) for name, (number, others) in pays.items()} == {
        "right at once": (1.0, {"steps": 0.5}),
        "right with many calls": (0.7, {"steps": 0.5}),
        HONEST_WORK: (-0.3, {}),
        GIVING_UP: (0.0, {}),
        "malformed": (-0.3, {}),
    }
    gated = {**section, "efficiency": {"free_calls": 2, "gate": "correctness >= 1"}}
    pays = payments(made(gated), 6, BudgetSettings())["*"]
    assert (pays[HONEST_WORK][0], pays[GIVING_UP][0]) == (0.0, 0.0)


@pytest.mark.parametrize(("budget", "turns", "paid"), [({}, 1, 0.0), ({}, 4, -0.3), ({"max_tool_calls": 2}, 4, -0.2)])
def test_work_is_what_the_limits_allow(budget: dict[str, int], turns: int, paid: float) -> None:
    pays = payments(made({"efficiency": {"free_calls": 0}}), turns, BudgetSettings(**budget))["*"]
    assert pays[HONEST_WORK][0] == pytest.approx(paid)


def test_tokens_are_half_of_the_limit_and_schedules_at_their_end() -> None:
    tokens = {"weight": {"start": 0, "end": 2, "to_step": 5}, "per_1000_tokens": 0.1, "penalty": 0}
    pays = payments(made({"efficiency": tokens, "overlong": {"penalty": 9}}), 4, BudgetSettings())["*"]
    assert pays[HONEST_WORK][0] == pytest.approx(-2 * 0.1 * 0.5)
    assert pays[GIVING_UP][0] == pytest.approx(-2 * 0.1 * 0.125)
