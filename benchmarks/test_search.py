"""Queries a second of the local search tool on 100,000 synthetic passages, through the whole tool runtime.

The words follow Zipf's law, as those of a language do, so that common words have long lists. The same formula, computed
passage by passage in plain Python, is the comparison; it must rank the same passages first.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from agent_rl.tools import ToolSession, ToolSpec
from agent_rl.tools.builtin._bm25 import K1, B, open_index
from agent_rl.tools.builtin.search import Search
from agent_rl.trajectory import ToolCall

pytestmark = pytest.mark.benchmark

PASSAGES, WORDS, VOCABULARY, QUERIES = 100_000, 100, 100_000, 500


@pytest.fixture(scope="module")
def passages() -> list[list[str]]:
    rng = random.Random(0)
    vocabulary = [f"word{number}" for number in range(VOCABULARY)]
    cumulative, total = [], 0.0
    for rank in range(1, VOCABULARY + 1):
        total += 1 / rank
        cumulative.append(total)
    return [rng.choices(vocabulary, cum_weights=cumulative, k=WORDS) for _ in range(PASSAGES)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, passages: list[list[str]]) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    with path.open("w") as file:
        for number, words in enumerate(passages):
            file.write(json.dumps({"id": str(number), "contents": f"passage\n{' '.join(words)}"}) + "\n")
    return path


def queries(passages: list[list[str]]) -> list[str]:
    """Six words of one passage each."""
    rng = random.Random(1)
    return [" ".join(rng.sample(rng.choice(passages), 6)) for _ in range(QUERIES)]


def plain_bm25(passages: list[list[str]], query: str, top_k: int) -> list[int]:
    lengths = sum(len(words) + 1 for words in passages) / len(passages)
    counts = [Counter(words) for words in passages]
    scores = [0.0] * len(passages)
    for word in query.split():
        holding = sum(word in count for count in counts)
        idf = math.log(1 + (len(passages) - holding + 0.5) / (holding + 0.5))
        for number, count in enumerate(counts):
            if times := count[word]:
                scores[number] += idf * times / (times + K1 * (1 - B + B * (len(passages[number]) + 1) / lengths))
    return sorted(range(len(passages)), key=lambda number: -scores[number])[:top_k]


def test_queries_a_second(corpus: Path, passages: list[list[str]]) -> None:
    started = time.perf_counter()
    open_index(corpus)
    built = time.perf_counter()
    index = open_index(corpus)
    opened = time.perf_counter()
    asked = queries(passages)
    spec = ToolSpec.from_class(Search, config={"corpus": str(corpus), "top_k": 3})

    async def trajectories() -> int:
        async def one(query: str) -> int:
            async with ToolSession([spec], default_timeout_s=60) as session:
                return len((await session.run([ToolCall("search", {"query": query})]))[0].metrics["ids"])

        return sum(await asyncio.gather(*map(one, asked)))

    assert asyncio.run(trajectories()) == 3 * QUERIES
    through_the_tool = time.perf_counter()
    for query in asked:
        index.search(query, 3)
    alone = time.perf_counter()
    expected = plain_bm25(passages, asked[0], 3)
    plain = time.perf_counter()
    assert [int(hit.id) for hit in index.search(asked[0], 3)] == expected
    print(
        f"\n{PASSAGES} passages: built in {built - started:.1f} s, opened in {1000 * (opened - built):.0f} ms;"
        f" {QUERIES / (through_the_tool - opened):.0f} queries/s through the tool,"
        f" {QUERIES / (alone - through_the_tool):.0f} from the index, plain Python {1 / (plain - alone):.2f}"
    )
