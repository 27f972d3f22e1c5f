"""The environments of the recipes: the expert solves every row, and what the tools answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from agent_rl.environments import load_environment
from agent_rl.environments.rows import environment_rows
from agent_rl.environments.session import row_values
from agent_rl.environments.worked import expert_turns, habit_shares
from agent_rl.errors import ToolError
from tests.environments.families.playing import Action, episode, play, session

ROOT = Path(__file__).parents[2]
SHOP = f"{ROOT}/recipes/service/shop.py:Shop"


def rows(target: str, split: str = "test") -> list[dict[str, Any]]:
    return [row_values(row) for row in environment_rows(load_environment("it", target), split, seed=0)]


def expert(target: str, row: dict[str, Any]) -> list[Action]:
    turns = expert_turns(load_environment("it", target), row)
    return [(turn.tool, dict(turn.arguments)) if turn.tool else turn.message for turn in turns]


def refusal(target: str, row: dict[str, Any], *calls: tuple[str, dict[str, Any]]) -> str:
    """What the last of the calls is refused with."""

    async def last() -> str:
        world = session(target, row)
        await world.reset()
        for call in calls[:-1]:
            await world.call(*call)
        with pytest.raises(ToolError) as caught:
            await world.call(*calls[-1])
        await world.close()
        return str(caught.value)

    return asyncio.run(last())


@pytest.mark.parametrize("target", [SHOP])
def test_the_expert_solves_every_row_and_its_spoiled_copies_few(target: str) -> None:
    kind = load_environment("it", target)
    assert fmean(play(target, row, expert(target, row)).reward for row in rows(target)[:60]) == 1.0
    assert habit_shares(kind, environment_rows(kind, "train", seed=0))["oracle"] >= 0.3
    seen = {str(row) for row in rows(target, "train")}
    assert not seen & {str(row) for row in rows(target)}


def test_a_customer_answers_a_question_and_leaves_after_any_other_message() -> None:
    row = next(row for row in rows(SHOP) if row["state"] == "shipped")
    number = {"number": row["number"]}
    stop, texts = ("stop_parcel", number), [None, "stopped", row["reply"], None]
    assert play(SHOP, row, [stop, "Which order?", "Done."])[:2] == (texts, 1.0)
    assert asyncio.run(episode(SHOP, row, [stop, "Which order?"])).reward == 0.0  # the customer is still there
    assert play(SHOP, row, ["Done."]).reward == play(SHOP, row, [("refund_order", number), "Done."]).reward == 0.0
    assert refusal(SHOP, row, ("stop_parcel", {"number": "1"})) == "there is no '1' among the orders"


def test_no_order_number_occurs_twice() -> None:
    numbers = [row["number"] for split in ("train", "test") for row in rows(SHOP, split)]
    assert len(set(numbers)) == len(numbers) == 5500
