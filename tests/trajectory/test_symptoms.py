"""What metrics say about a run, and that a healthy run says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_rl.trajectory.symptoms import run_warnings

HEALTHY: dict[str, Callable[[int], float]] = {
    "critic/score/mean": lambda step: step / 40,
    "agent/correctness": lambda step: step / 40,
    "agent/style": lambda step: step % 3,
    "actor/kl_loss": lambda step: step / 100,
    "actor/entropy": lambda step: 2 - step / 30,
    "response_length/clip_ratio": lambda step: 0.02,
    "agent/tool_calls": lambda step: 1.5,
}


def said(count: int = 30, **changed: Callable[[int], Any]) -> list[str]:
    metrics = {**HEALTHY, **{key.replace("__", "/"): value for key, value in changed.items()}}
    steps = [{"step": step, **{key: value(step) for key, value in metrics.items()}} for step in range(1, count + 1)]
    return run_warnings(steps, {"agent_rl": {"reward": {"components": {"style": {"kind": "style"}}}}})


def test_a_healthy_run_says_nothing() -> None:
    assert said() == []
    assert run_warnings([], {}) == []
    assert run_warnings([{"step": 1}], {}) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"agent__style": lambda step: 0.5}, "The component style is 0.5 in all 30 steps"),
        ({"agent__correctness": lambda step: 0.9 - step / 100}, "Since step 1 correctness falls (0.85"),
        ({"actor__kl_loss": lambda step: 1.0 if step < 17 else 11.0}, "actor/kl_loss is above 10 since step 17 (11)"),
        ({"actor__entropy": lambda step: 2.0 if step < 9 else 0.1}, "below a tenth of its start (2) since step 9"),
        ({"response_length__clip_ratio": lambda step: 0.0 if step < 12 else 0.4}, "since step 12: 0% in the first"),
        ({"agent__tool_calls": lambda step: 0}, "No tool was ever called"),
        ({"agent__tool_calls": lambda step: 1.0 if step < 14 else 0}, "not called any more since step 14 (1.00 calls"),
    ],
)
def test_what_goes_wrong_is_said_with_its_step(changed: dict[str, Any], words: str) -> None:
    (found,) = said(**changed)
    assert words in found


def test_a_few_steps_are_no_trend() -> None:
    assert said(6, agent__style=lambda step: 0.5, actor__entropy=lambda step: 2.0 / step**3) == []


def test_values_that_are_no_numbers_do_not_count() -> None:
    assert said(actor__kl_loss=lambda step: float("nan"), actor__entropy=lambda step: None) == []
