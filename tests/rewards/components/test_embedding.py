import asyncio
import json
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.component import Component, make_component
from agent_rl.trajectory import StopReason, Trajectory
from tests.http_faults import FaultyServer, answer

VECTORS = {"paris": [2.0, 0.0], "capital of france": [1.0, 1.0], "rome": [0.0, 3], "away": [-1.0, 0.0]}


def embed(handler: Any) -> None:
    asked = json.loads(handler.body)
    data = [{"index": i, "embedding": VECTORS[text.lower()]} for i, text in enumerate(asked["input"])]
    answer(200, {"data": data[::-1], "model": asked["model"]})(handler)


def component(url: str, **config: Any) -> Component:
    made = make_component("meaning", "embedding", {"url": url, "model": "bge", **config}, "key")
    assert isinstance(made, Component)
    return made


def value(made: Component, text: str | None, truth: Any) -> float:
    trajectory = Trajectory([], StopReason.ANSWERED, answer=text, ground_truth=truth)
    return asyncio.run(made.measure(trajectory)).value


def test_the_cosine_to_the_nearest_truth() -> None:
    with FaultyServer(default=embed) as server:
        made = component(f"{server.url}/v1")
        assert value(made, "Paris", "paris") == pytest.approx(1.0)
        assert value(made, "Paris", "rome") == pytest.approx(0.0)
        assert value(made, "capital of France", ["rome", "paris"]) == pytest.approx(0.5**0.5)
        assert value(made, "away", {"target": ["paris"]}) == pytest.approx(-1.0)
        assert [len(json.loads(request.body)["input"]) for request in server.requests] == [2, 2, 3, 2]
        assert value(made, None, "paris") == value(made, "  ", "paris") == 0.0
        assert {request.path for request in server.requests} == {"/v1/embeddings"}


@pytest.mark.parametrize(
    "body",
    [
        {"data": []},
        {"data": [{"index": 0, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]},
        {"data": [{"index": 0, "embedding": [0.0]}, {"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": ["1"]}, {"index": 1, "embedding": [1.0]}]},
        {"data": "none"},
        [],
        b'{"data": [{"index": 0, "embedding": [NaN]}, {"index": 1, "embedding": [1.0]}]}',
        b"half a bo",
    ],
)
def test_an_answer_that_is_none_is_unscored(body: Any) -> None:
    with FaultyServer(default=answer(200, body)) as server, pytest.raises(UnscoredError):
        value(component(server.url), "Paris", "rome")


@pytest.mark.parametrize("truth", [None, "", [" "]])
def test_without_a_ground_truth_it_is_unscored(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth"):
        value(component("http://localhost:1"), "Paris", truth)
