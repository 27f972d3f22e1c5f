"""The routes of a real service."""

import math
from typing import Any

import httpx
import pytest

from agent_rl.rewards.service.wire import MAX_ITEMS
from agent_rl.trajectory import Message, StopReason, ToolCall, Trajectory, Turn
from tests.rewards.service.process import Service

RIGHT = {"solution_str": "4", "ground_truth": "4"}


def post(service: Service, body: Any, path: str = "/get_reward") -> httpx.Response:
    return httpx.post(f"{service.url}{path}", json=body, timeout=60)


def test_verls_arguments_are_scored(service: Service) -> None:
    answer = post(service, RIGHT).json()
    assert answer["score"] == 1
    assert answer["components"] == {"correctness": 1, "efficiency": 0, "format": 0, "overlong": 0}
    assert answer["logged"]["length"] == 1
    assert post(service, {**RIGHT, "ground_truth": "5"}).json()["score"] == 0


def test_a_trajectory_is_scored_with_what_its_agent_did(service: Service) -> None:
    calls = [ToolCall("calculator", {"expression": str(number)}) for number in range(5)]
    trajectory = Trajectory(
        prompt=[Message("user", "2+2?")],
        stop_reason=StopReason.ANSWERED,
        turns=[Turn("I compute.", calls=calls), Turn("4")],
        answer="4",
        ground_truth="4",
    )
    answer = post(service, {"trajectory": trajectory.to_dict()}).json()
    assert answer["components"]["efficiency"] == pytest.approx(-0.2)
    assert answer["score"] == 1  # the service's configuration names no key of efficiency: it is only logged


def test_an_unscored_item_fails_neither_the_batch_nor_counts_as_zero(service: Service) -> None:
    trajectory = {"prompt": [], "stop_reason": "answered", "answer": "4", "ground_truth": "4"}
    items = [
        RIGHT,
        *({"solution_str": order} for order in ("away", "broken", "nan")),
        {"trajectory": trajectory},
        {**RIGHT, "ground_truth": "5"},
    ]
    response = post(service, {"items": items})
    assert response.status_code == 200
    first, *others, whole, last = response.json()["items"]
    assert (first["score"], whole["score"], last["score"]) == (1, 1, 0)
    assert [other["unscored"] for other in others] == [True, True, True]
    assert not any("score" in other for other in others)
    away, broken, _ = (other["error"] for other in others)
    assert "the sandbox is away" in away
    assert "KeyError" in broken


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"solution": "4"}, "solution_str"),
        ({"solution_str": "4", "ground": "4"}, "ground"),
        ({"items": []}, "items"),
        ({"items": [{"solution_str": "4"}] * (MAX_ITEMS + 1)}, "items"),
        ({"trajectory": {"prompt": [], "stop_reason": "answered", "version": 99}}, "trajectory"),
        ({"items": [RIGHT, {**RIGHT, "extra_info": 3}]}, "items.1.extra_info"),
        ({"trajectory": {"prompt": [{"role": "king", "content": ""}]}}, "trajectory.prompt.0.role"),
        ([1, 2], ""),
    ],
)
def test_a_bad_request_is_answered_with_its_field(service: Service, body: Any, field: str) -> None:
    response = post(service, body)
    assert response.status_code == 422
    assert response.json()["field"] == field
    assert field in response.json()["error"]


def test_an_endpoint_without_a_section_says_which(service: Service) -> None:
    response = post(service, RIGHT, "/get_reward2")
    assert response.status_code == 404
    assert "no 'judge' section" in response.json()["error"]


def test_health_metrics_and_documentation(service: Service) -> None:
    post(service, {"items": [RIGHT, {"solution_str": "away"}]})
    assert httpx.get(f"{service.url}/health").json() == {"status": "ok", "endpoints": ["/get_reward"]}
    counts = httpx.get(f"{service.url}/metrics").text
    assert 'agent_rl_reward_requests_total{endpoint="/get_reward",status="200"}' in counts
    assert 'agent_rl_reward_trajectories_total{endpoint="/get_reward",outcome="unscored"}' in counts
    assert httpx.get(f"{service.url}/docs").status_code == 200
    described = httpx.get(f"{service.url}/openapi.json").json()
    assert list(described["paths"]) == ["/get_reward", "/health", "/metrics"]
    schemas = described["components"]["schemas"]
    assert {"Arguments", "Whole", "Batch", "Scored", "Unscored", "Answers"} <= schemas.keys()


def test_no_number_of_json_is_infinite(service: Service) -> None:
    headers = {"content-type": "application/json"}
    body = b'{"solution_str": "4", "ground_truth": NaN, "extra_info": {"x": Infinity}}'
    response = httpx.post(f"{service.url}/get_reward", content=body, headers=headers)
    assert response.status_code in (200, 422)
    assert math.isfinite(response.json().get("score", 0))
