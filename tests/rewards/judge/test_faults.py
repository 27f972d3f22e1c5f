"""A thousand trajectories and a judge that fails in every way: each is scored as it deserves, or not at all."""

import asyncio
import json
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Value
from agent_rl.rewards.judge import Judge
from tests.rewards.judge.injections import INJECTIONS
from tests.rewards.judge.server import answers_in, completion, made, trajectory
from tests.support.http_faults import FaultyServer, answer, cut_short, hang

pytestmark = pytest.mark.slow

TRAJECTORIES = 1000
LIMIT_S = 300
"""Within which all must be done; nothing is measured by it."""

Step = Callable[[Any], None]


def reply(handler: Any, text: Callable[[str, int], str]) -> None:
    (inside,) = answers_in(json.loads(handler.body))
    score = int(re.findall(r"quality (\d+)", inside)[-1])
    answer(200, completion(text(inside, score)))(handler)


def judged(handler: Any) -> None:
    reply(handler, lambda inside, score: f'{{"reason": "as it is", "score": {score}}}')


def out_of_range(handler: Any) -> None:
    reply(handler, lambda inside, score: f'{{"score": {score + 11}}}')


def injection(handler: Any) -> None:
    """The judge repeats what it was told, before and after its verdict."""
    reply(handler, lambda inside, score: f'{inside}\n{{"reason": "it cheats", "score": {score}}}\n{inside}')


UNUSABLE: dict[str, Step] = {
    "429": answer(429, retry_after=0.05),
    "500": answer(500, b"oops"),
    "hang": hang,
    "half a body": cut_short,
    "invalid JSON": answer(200, b'{"choices": [{"mess'),
    "out of range": out_of_range,
}
FAULTS = [*UNUSABLE.values(), injection]


def every_fifth() -> Step:
    """One request in five meets a fault, each kind in turn."""
    numbers = count()

    def step(handler: Any) -> None:
        number = next(numbers)
        (FAULTS[number // 5 % len(FAULTS)] if number % 5 == 4 else judged)(handler)

    return step


def quality(index: int) -> int:
    return index % 11


def text(index: int) -> str:
    """An answer; one in five is an injection."""
    attack = INJECTIONS[index // 5 % len(INJECTIONS)] if index % 5 == 0 else "An honest answer."
    return f"{attack}\nNumber {index}, of quality {quality(index)}"


async def measured(judge: Judge, trajectories: int) -> list[Value | BaseException]:
    work = [judge.measure(trajectory(text(index))) for index in range(trajectories)]
    return await asyncio.wait_for(asyncio.gather(*work, return_exceptions=True), LIMIT_S)


def check(results: list[Value | BaseException]) -> int:
    """Every result is the true score or unscored; how many are unscored."""
    unscored = 0
    for index, result in enumerate(results):
        if isinstance(result, Value):
            assert result.value == quality(index) / 10
        else:
            assert isinstance(result, UnscoredError), result
            unscored += 1
    return unscored


# A score of 10 is the best: quality 10 is there too.
assert max(map(quality, range(TRAJECTORIES))) == 10


def test_with_patience_all_are_scored() -> None:
    with FaultyServer(default=every_fifth()) as server:
        judge = made(Judge, server, timeout_s=5, attempts=8, verdict_attempts=8)
        results = asyncio.run(measured(judge, TRAJECTORIES))
        requests = len(server.requests)
    assert check(results) == 0
    assert len(results) == TRAJECTORIES
    assert requests > 1.15 * TRAJECTORIES
    values = [result for result in results if isinstance(result, Value)]
    calls = sum(value.logged["calls"] for value in values)
    assert TRAJECTORIES < calls < requests
    assert sum(value.logged["calls"] - value.logged["votes"] for value in values) == calls - TRAJECTORIES


def test_without_patience_exactly_the_faults_are_unscored() -> None:
    with FaultyServer(default=every_fifth()) as server:
        judge = made(Judge, server, timeout_s=5, attempts=1, verdict_attempts=1, breaker={"failures": None})
        results = asyncio.run(measured(judge, TRAJECTORIES))
        requests = len(server.requests)
    faults = [FAULTS[number % len(FAULTS)] for number in range(TRAJECTORIES // 5)]
    expected = sum(fault is not injection for fault in faults)
    assert check(results) == expected == 172
    assert requests == TRAJECTORIES
