"""Requests to a home assistant, to be answered with calls of the functions that the row declares.

A request determines the function and its arguments, which are strings and integers; a quarter of the rows have two
requests, and one in six matches none of the functions. No other split combines words and numbers the way a test row's
request does.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, drawn_rows, held_out, native_turn

WORDS = {
    "room": ("attic", "bath", "cellar", "garage", "hall", "kitchen", "office", "porch"),
    "person": ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo"),
    "item": ("apples", "books", "cards", "forks", "lamps", "nails", "pens", "stamps"),
}
REQUESTS = {
    "set_timer": ("set a timer in the {room} for {minutes} minutes", ("room", "minutes")),
    "set_light": ("dim the light in the {room} to {level}", ("room", "level")),
    "add_item": ("put {count} {item} on the list", ("item", "count")),
    "send_money": ("send {euros} euros to {person}", ("person", "euros")),
    "call_person": ("call {person} in {minutes} minutes", ("person", "minutes")),
}
"""The words of a request and the arguments, by function."""
NUMBERS = range(10, 100)
FOR_NONE = "tell me what {count} {item} weigh"
SHARES = {1: 7, 2: 3, 0: 2}
"""Relative frequency of rows with one, two or no requests that a function can fulfill."""

Call = dict[str, Any]
Pair = tuple[int, int]
"""Index of a request's word within its kind, and its number."""


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each split (see `World.write`); no files are needed."""
    return drawn_rows(held_out(itertools.product(range(8), NUMBERS), seed), seed, counts, _row)


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Makes the requested calls, or says that no function fits."""
    yield _turn("With care.", _truth(row))


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Makes no call, which is right if no function fits."""
    yield _turn("Just talk.", [])


def untyped(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Makes the right calls, but writes numbers as text."""
    calls = [_call(call["name"], {key: str(value) for key, value in call["arguments"].items()}) for call in _truth(row)]
    yield _turn("As text.", calls)


def careless(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Calls the right functions with random arguments."""
    yield _turn("Roughly.", [_random_call(rng, call["name"]) for call in _truth(row)] or [_random_call(rng)])


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a call that cannot be parsed."""
    calls = _truth(row) or [_random_call(rng)]
    yield _turn("Quickly.", calls).replace("</tool_call>", "")


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Makes random calls."""
    yield _turn("Roughly.", [_random_call(rng) for _ in range(rng.randrange(3))])


WORLD = World("tool_calls", write, by_name(oracle, no_tool, untyped, careless, malformed, acting_at_random))


def _row(rng: random.Random, pairs: Sequence[Pair]) -> dict[str, Any]:
    names = rng.sample(list(REQUESTS), rng.choices(list(SHARES), list(SHARES.values()))[0])
    calls = [_call(name, _arguments(REQUESTS[name][1], rng.choice(pairs))) for name in names]
    requests = [REQUESTS[call["name"]][0].format(**call["arguments"]) for call in calls]
    none = FOR_NONE.format(**_arguments(("item", "count"), rng.choice(pairs)))
    return {
        "question": f"Please {' and '.join(requests or [none])}.",
        "data_source": "agent_rl/tool_calls",
        "ground_truth": calls,
        "agent_name": "tool_call_agent",
        "ability": "tool_calls",
        "extra_info": {"functions": [_schema(name) for name in REQUESTS]},
    }


def _schema(name: str) -> dict[str, Any]:
    text, arguments = REQUESTS[name]
    properties = {key: {"type": "string" if key in WORDS else "integer"} for key in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(arguments)}
    return {"name": name, "description": f"To {text}.", "parameters": parameters}


def _random_call(rng: random.Random, name: str = "") -> Call:
    name = name or rng.choice(list(REQUESTS))
    return _call(name, _arguments(REQUESTS[name][1], (rng.randrange(8), rng.choice(NUMBERS))))


def _arguments(names: Sequence[str], pair: Pair) -> dict[str, Any]:
    return {name: WORDS[name][pair[0]] if name in WORDS else pair[1] for name in names}


def _call(name: str, arguments: Mapping[str, Any]) -> Call:
    return {"name": name, "arguments": dict(arguments)}


def _truth(row: Mapping[str, Any]) -> list[Call]:
    calls: list[Call] = row["reward_model"]["ground_truth"]
    return calls


def _turn(thought: str, calls: Sequence[Call]) -> str:
    return native_turn(thought, *calls) + ("" if calls else "No function is for that.")
