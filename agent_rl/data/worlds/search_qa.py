"""Two-hop questions about people: the first search finds the person, the second the requested fact.

Facts cannot be guessed from a person's name. The people in test questions occur in no other split's questions; the
corpus has passages about everyone.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent_rl.data.worlds.world import Turns, World, by_name, split_rows

FIRST = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jan", "Kim", "Leo",
    "Mia", "Nora", "Olaf", "Pia", "Rosa", "Sam", "Tina", "Uli", "Vera", "Wim", "Yara", "Zoe",
)  # fmt: skip
LAST = (
    "Adams", "Bell", "Cook", "Dale", "East", "Frost", "Gray", "Hill", "Irving", "Jones", "King", "Lake",
    "Moss", "North", "Owen", "Park", "Reed", "Stone", "Thorn", "Vale", "West", "Yates", "Young", "Zimmer",
)  # fmt: skip
RELATIONS = ("boss", "friend", "teacher", "doctor")
FACTS = {
    "town": (
        "Oslo", "Rome", "Paris", "Lima", "Cairo", "Delhi", "Quito", "Bern", "Dakar", "Sofia", "Tunis", "Vienna",
        "Kyoto", "Malmo", "Porto", "Seoul",
    ),
    "job": (
        "baker", "pilot", "nurse", "smith", "tailor", "judge", "sailor", "farmer", "painter", "miner", "actor",
        "clerk", "guard", "singer", "writer", "driver",
    ),
}  # fmt: skip
HELD_OUT = 96
"""Number of people reserved for test questions."""
CORPUS = "corpus.jsonl"


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Write the corpus to `folder/corpus.jsonl`, and return the rows of each split (see `World.write`)."""
    source = random.Random(seed)
    people = [f"{first} {last}" for first, last in itertools.product(FIRST, LAST)]
    source.shuffle(people)
    known: dict[tuple[str, str], str] = {}
    for person in people:
        for relation in RELATIONS:
            known[relation, person] = source.choice([other for other in people if other != person])
        for fact, values in FACTS.items():
            known[fact, person] = source.choice(values)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / CORPUS, "w", encoding="utf-8") as file:
        for number, ((key, person), value) in enumerate(known.items()):
            text = f"The {key} of {person} is {value}."
            file.write(json.dumps({"id": str(number), "title": person, "text": text}) + "\n")
    pools = (itertools.product(who, RELATIONS, FACTS) for who in (people[:HELD_OUT], people[HELD_OUT:]))
    return split_rows(pools, seed, counts, lambda task: _row(known, *task))


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Searches for the person, then for the fact."""
    info = row["extra_info"]
    passages = yield _search(f"{info['relation']} of {info['person']}", "Two steps.")
    passages = yield _search(f"{info['fact']} of {_value(passages)}", "I know who.")
    yield _answer(_value(passages), "I have it.")


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Answers with a guess."""
    yield _answer(_guess(row, rng), "Just guess.")


def one_hop(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Searches for the fact about the person in the question, who is the wrong person."""
    info = row["extra_info"]
    passages = yield _search(f"{info['fact']} of {info['person']}", "One step.")
    yield _answer(_value(passages), "It says so.")


def stopping(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Searches for the person, then guesses the fact."""
    info = row["extra_info"]
    yield _search(f"{info['relation']} of {info['person']}", "Who is it?")
    yield _answer(_guess(row, rng), "Enough.")


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a search that cannot be parsed, then guesses."""
    info = row["extra_info"]
    yield f"<think>Use search.</think>\nsearch: {info['relation']} of {info['person']}"
    yield _answer(_guess(row, rng), "Just guess.")


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Searches for a random person or answers with a random fact, with equal odds at each turn."""
    while rng.random() < 0.5:
        yield _search(f"{rng.choice(RELATIONS)} of {rng.choice(FIRST)} {rng.choice(LAST)}", "Two steps.")
    yield _answer(rng.choice(rng.choice(list(FACTS.values()))), "Just guess.")


WORLD = World("search_qa", write, by_name(oracle, no_tool, one_hop, stopping, malformed, acting_at_random))


def _value(passages: str) -> str:
    """Return the value that the first passage states."""
    match = re.search(r" is ([\w ]+)\.", passages)
    return match[1] if match else ""


def _row(known: Mapping[tuple[str, str], str], person: str, relation: str, fact: str) -> dict[str, Any]:
    return {
        "question": f"What is the {fact} of the {relation} of {person}?",
        "data_source": "agent_rl/search_qa",
        "ground_truth": [known[fact, known[relation, person]]],
        "agent_name": "search_agent",
        "ability": "search",
        "extra_info": {"person": person, "relation": relation, "fact": fact},
    }


def _guess(row: Mapping[str, Any], rng: random.Random) -> str:
    return rng.choice(FACTS[row["extra_info"]["fact"]])


def _search(query: str, thought: str) -> str:
    return f"<think>{thought}</think>\n<search>{query}</search>"


def _answer(text: str, thought: str) -> str:
    return f"<think>{thought}</think>\n<answer>{text}</answer>"
