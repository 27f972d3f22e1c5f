"""Questions about small shops, each with its own database, which has its own table and column names.

A question does not contain these names: without the schema, a query can only guess one of 576 combinations. The
databases of the test rows have combinations that occur in no other split.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from agent_rl.data.text_to_sql import new_database
from agent_rl.data.worlds.world import Turns, World, by_name, react_answer, react_call, split_rows

TABLES = ("goods", "items", "wares", "stock", "parts", "lots")
NAMES = ("name", "label", "title", "word")
AMOUNTS = ("amount", "number", "quantity", "pieces", "units", "volume")
PRICES = ("price", "cost", "value", "fee")
THINGS = (
    "apples", "bags", "balls", "belts", "books", "boxes", "cards", "chairs", "clocks", "coats", "coins", "cups",
    "doors", "forks", "hats", "keys", "lamps", "nails", "pens", "plates", "ropes", "shoes", "stamps", "tables",
)  # fmt: skip
QUESTIONS = {"amount": "How many {thing} are there?", "price": "What do {thing} cost?"}
SCHEMAS = 96
"""Number of databases; a quarter of them are for the test rows."""

Schema = tuple[str, str, str, str]
"""Names of the table and of its three columns, which contain names, amounts and prices."""


def write(folder: Path, seed: int, counts: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Write the databases to `folder/databases/*.sqlite`, and return the rows of each split (see `World.write`)."""
    source = random.Random(seed)
    schemas: list[Schema] = source.sample(list(itertools.product(TABLES, NAMES, AMOUNTS, PRICES)), SCHEMAS)
    databases = folder / "databases"
    databases.mkdir(parents=True, exist_ok=True)
    for number, schema in enumerate(schemas):
        _make_database(databases / f"{number}.sqlite", schema, random.Random(f"{seed}/{number}"))
    numbers = (range(SCHEMAS // 4), range(SCHEMAS // 4, SCHEMAS))
    pools = (itertools.product(part, THINGS, QUESTIONS) for part in numbers)
    return split_rows(pools, seed, counts, lambda task: _row(databases, schemas, *task))


def oracle(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Reads the schema, then answers with the query."""
    yield _call("Look first.", ".schema")
    yield react_answer("I have the names.", _truth(row))


def careful(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Reads the schema and runs the query before answering with it."""
    yield _call("With care.", ".schema")
    yield _call("I try it.", _truth(row))
    yield react_answer("It works.", _truth(row))


def no_tool(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Answers with a query that guesses the names."""
    yield react_answer("Just guess.", _guess(row, rng))


def ignoring(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Reads the schema, but guesses the names."""
    yield _call("Maybe look.", ".schema")
    yield react_answer("Never mind.", _guess(row, rng))


def malformed(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Writes a call that cannot be parsed, then guesses."""
    yield "Thought: Use tool.\n" + rng.choice(("Action sql(.schema)", 'Action: sql\nAction Input: {"query": .schema'))
    yield react_answer("Just guess.", _guess(row, rng))


def acting_at_random(row: Mapping[str, Any], rng: random.Random) -> Turns:
    """Reads the schema or answers with a random query, with equal odds at each turn."""
    while rng.random() < 0.5:
        yield _call("Look first.", ".schema")
    yield react_answer("Just guess.", _query(rng.choice(list(QUESTIONS)), rng.choice(THINGS), _any_schema(rng)))


WORLD = World("text_to_sql", write, by_name(oracle, careful, no_tool, ignoring, malformed, acting_at_random))


def _make_database(path: Path, schema: Schema, rng: random.Random) -> None:
    """Write all things into one table; all amounts and prices differ, so a wrong column gives a wrong answer."""
    table, name, amount, price = schema
    numbers = rng.sample(range(10, 1000), 2 * len(THINGS))
    path.unlink(missing_ok=True)
    with closing(new_database(path)) as database:
        database.execute(f"CREATE TABLE {table} ({name} TEXT, {amount} INTEGER, {price} INTEGER)")
        database.executemany(
            f"INSERT INTO {table} VALUES (?, ?, ?)", zip(THINGS, numbers[::2], numbers[1::2], strict=True)
        )
        database.commit()


def _row(databases: Path, schemas: list[Schema], number: int, thing: str, kind: str) -> dict[str, Any]:
    database = str(databases / f"{number}.sqlite")
    return {
        "question": QUESTIONS[kind].format(thing=thing),
        "data_source": "agent_rl/text_to_sql",
        "ground_truth": {"sql": _query(kind, thing, schemas[number]), "database": database},
        "ability": "sql",
        "tools_kwargs": {"sql": {"create_kwargs": {"database": database}}},
        "extra_info": {"kind": kind, "thing": thing},
    }


def _query(kind: str, thing: str, schema: Schema) -> str:
    table, name, amount, price = schema
    return f"SELECT {amount if kind == 'amount' else price} FROM {table} WHERE {name} = '{thing}'"


def _any_schema(rng: random.Random) -> Schema:
    return rng.choice(TABLES), rng.choice(NAMES), rng.choice(AMOUNTS), rng.choice(PRICES)


def _guess(row: Mapping[str, Any], rng: random.Random) -> str:
    return _query(row["extra_info"]["kind"], row["extra_info"]["thing"], _any_schema(rng))


def _truth(row: Mapping[str, Any]) -> str:
    return str(row["reward_model"]["ground_truth"]["sql"])


def _call(thought: str, query: str) -> str:
    return react_call(thought, "sql", {"query": query})
