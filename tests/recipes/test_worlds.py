"""The environments of the recipes: the expert solves every row, and what the tools answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from agent_rl.environments import load_environment
from agent_rl.environments.kind import environment_rows, row_values
from agent_rl.environments.worked import expert_turns, habit_shares
from agent_rl.errors import ToolError
from tests.environments.families.playing import Action, episode, play, session

ROOT = Path(__file__).parents[2]
SHOP = f"{ROOT}/recipes/service/shop.py:Shop"

HOUSE = f"{ROOT}/recipes/text_world/text_world.py:Household"
MILESTONES = HOUSE.replace("Household", "Milestones")


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


@pytest.mark.parametrize("target", [SHOP, HOUSE, MILESTONES])
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


ROW = {
    "prompt": "Bring the cup to the office.",
    "thing": "cup",
    "target": "office",
    "furniture": {"kitchen": "drawer", "bath": "chest", "cellar": "box"},
    "places": {"cup": "bath", "hat": "kitchen"},
}
COMMANDS = {"go": "room", "open": "furniture", "take": "thing", "put": "thing"}


def commands(text: str) -> list[Any]:
    """`go bath, open chest` as calls."""
    words = [command.split() for command in text.split(", ")]
    return [(name, {COMMANDS[name]: value}) for name, value in words]


BRING = "go bath, open chest, take cup, go office, put cup"


def test_a_thing_is_brought_through_a_household() -> None:
    texts = ["There is a closed chest.", "In it: cup.", "You have the cup.", "There is nothing to open.",
             "The cup is in the office."]  # fmt: skip
    assert play(HOUSE, ROW, [*commands(BRING), "done"])[:2] == ([None, *texts, None], 1.0)
    assert play(HOUSE, ROW, commands(BRING)).reward == 0.0, "the agent has not said that it is done"
    untidy = commands(f"go kitchen, open drawer, take hat, {BRING}")
    assert play(HOUSE, ROW, [*untidy, "done"]).reward == 0.0
    assert play(HOUSE, ROW, ["done"]).reward == 0.0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("take cup", "you see no cup"),
        ("put cup", "you do not have the cup"),
        ("put piano", "there is no 'piano' among the things"),
        ("go barn", "there is no 'barn' among the rooms"),
        ("go bath, open drawer", "there is no drawer here"),
        ("go bath, take cup", "you see no cup"),
        ("go bath, open chest, take cup, go cellar, put cup", "there is no open place for it here"),
        ("go bath, open chest, go office, go bath, take cup", "you see no cup"),
    ],
)
def test_what_a_household_refuses(text: str, problem: str) -> None:
    assert refusal(HOUSE, ROW, *commands(text)) == problem


def test_an_expert_of_a_household_tries_to_take_the_thing_in_each_room_until_it_has_it() -> None:
    assert {len(expert(HOUSE, row)) for row in rows(HOUSE)} == {6, 9, 12}


def test_held_out_pairs_of_thing_and_room_are_in_no_other_row() -> None:
    train, test = ({(row["thing"], row["target"]) for row in rows(HOUSE, split)} for split in ("train", "test"))
    assert not train & test
    assert len(train | test) == 24 * 8


def test_equal_states_have_one_key_and_milestones_are_paid_once() -> None:
    async def acted(target: str, text: str) -> tuple[Any, float]:
        world = session(target, ROW)
        await world.reset()
        outputs = [await world.call(*command) for command in commands(text)]
        await world.close()
        return world.instance.state_key(), sum(output.reward or 0.0 for output in outputs)

    (one, once), (other, twice) = (
        asyncio.run(acted(MILESTONES, text)) for text in (BRING, f"go bath, open chest, {BRING}, take cup, put cup")
    )
    assert one == other != asyncio.run(acted(MILESTONES, "go bath"))[0]
    assert once == twice == pytest.approx(0.3)
    assert asyncio.run(acted(HOUSE, BRING))[1] == 0.0
