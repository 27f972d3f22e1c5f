"""Text episodes of six to ten turns, in which a thing must be found in a household and brought to a room.

The thing is inside a piece of furniture in one of three rooms, among other things. The agent sees a room's furniture
only from inside the room, and its content only when it is open. Success is the right final state of the household
(`service_state`). The thing-room pairs in test rows occur in no other row.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, drawn_rows, held_out, react_answer, react_call

__all__ = ["WORLD"]

SEARCHED = ("kitchen", "bath", "cellar")
"""The rooms with furniture, in the order the solver searches them in."""
TARGETS = ("office", "porch", "attic", "garage", "hall", "studio", "shop", "yard")
FURNITURE = ("drawer", "chest", "box", "basket", "trunk", "cabinet", "locker", "crate")
THINGS = (
    "apple", "bag", "ball", "belt", "book", "bowl", "brush", "candle", "card", "clock", "coat", "coin",
    "cup", "fork", "hat", "key", "knife", "lamp", "pen", "plate", "rope", "shoe", "spoon", "towel",
)  # fmt: skip
DATABASE = "household.json"
TOOLS = ("go", "open", "take", "put")


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Write the rooms to `folder/household.json`, and return the rows of each split, with the content of the rooms."""
    folder.mkdir(parents=True, exist_ok=True)
    rooms: dict[str, dict[str, str]] = {room: {} for room in (*SEARCHED, *TARGETS)}
    (folder / DATABASE).write_text(json.dumps({"rooms": rooms, "things": {}}), encoding="utf-8")
    pools = held_out(itertools.product(THINGS, TARGETS), seed)
    return drawn_rows(pools, seed, counts, lambda *drawn: _row(folder, *drawn))


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Searches one room after another, and brings the thing."""
    yield from _search(row, "Look well.", SEARCHED)
    yield from _bring(row)


def giving_up(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Searches only the first room."""
    if (yield from _search(row, "One look.", SEARCHED[:1])):
        yield from _bring(row)
    else:
        yield react_answer("Done.", "done")


def forgetful(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Finds the thing, and brings it to a random room."""
    yield from _search(row, "Just find it.", SEARCHED)
    yield from _bring(row, rng.choice(TARGETS))


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Ends the episode without any command."""
    yield react_answer("No need.", "done")


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a command that cannot be parsed."""
    yield f"Thought: Be quick.\nAction go: {rng.choice(SEARCHED)}"
    yield react_answer("Done.", "done")


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Gives random commands."""
    while rng.random() < 0.8:
        tool = rng.choice(TOOLS)
        words = {"go": (*SEARCHED, *TARGETS), "open": FURNITURE}.get(tool, THINGS)
        yield react_call("Try it.", tool, rng.choice(words))
    yield react_answer("Done.", "done")


WORLD = World("text_world", write, by_name(oracle, giving_up, forgetful, no_tool, malformed, acting_at_random))


def _search(row: Mapping[str, Any], thought: str, rooms: tuple[str, ...]) -> Generator[str, str, bool]:
    """Search rooms until the thing is found; return whether it was found."""
    thing = row["extra_info"]["thing"]
    for room in rooms:
        view = yield react_call(thought, "go", room)
        furniture = view.removeprefix("Observation: There is a closed ").removesuffix(".")
        content = yield react_call("Open it.", "open", furniture)
        if thing in content.removeprefix("Observation: In it: ").removesuffix(".").split(", "):
            return True
        thought = "Not here."
    return False


def _bring(row: Mapping[str, Any], room: str = "") -> Turns:
    thing = row["extra_info"]["thing"]
    yield react_call("Here it is.", "take", thing)
    yield react_call("Bring it.", "go", room or row["extra_info"]["room"])
    yield react_call("Put it down.", "put", thing)
    yield react_answer("Done.", "done")


def _row(folder: Path, rng: random.Random, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    thing, room = rng.choice(pairs)
    others = rng.sample([each for each in THINGS if each != thing], 2)
    at = {thing: rng.choice(SEARCHED)} | {other: rng.choice(SEARCHED) for other in others}
    tables = {
        "rooms": {room: {"furniture": name} for room, name in zip(SEARCHED, rng.sample(FURNITURE, 3), strict=True)},
        "things": {name: {"at": at[name]} for name in sorted(at)},
    }
    initial = {"tables": tables}
    actions = [("go", at[thing]), ("open", tables["rooms"][at[thing]]["furniture"]), ("take", thing), ("go", room),
               ("put", thing)]  # fmt: skip
    return {
        "question": f"Bring the {thing} to the {room}.",
        "data_source": "agent_rl/text_world",
        "ground_truth": {
            "domain": "household",
            "database": str(folder / DATABASE),
            "initial": initial,
            "actions": [{"name": tool, "arguments": {_parameter(tool): value}} for tool, value in actions],
        },
        "ability": "text_world",
        "tools_kwargs": {tool: {"create_kwargs": {"initial": initial}} for tool in TOOLS},
        "extra_info": {"thing": thing, "room": room},
    }


def _parameter(tool: str) -> str:
    return {"go": "room", "open": "furniture"}.get(tool, "thing")
