import asyncio
import time
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import SCORERS, score_answer, score_now
from agent_rl.rewards.scorers.math import worker
from agent_rl.rewards.scorers.math.math_answer import score_math

MATH = SCORERS["math"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "answer",
    [r"5 \\ 6", "5 | 6", r"5 \lor 6", r"5, \ldots, 6", r"5 \equiv 6", r"5 \to 6", "x = 5 = 6"],
)
def test_values_joined_by_a_sign_are_none_of_them(answer: str, strict: str) -> None:
    assert [score_now(MATH.using(strict=strict), f"\\boxed{{{answer}}}", truth) for truth in ("5", "6")] == [0, 0]


@pytest.mark.parametrize("truth", [None, "", "  ", [], True, {"a": 1}, ["5", None], "x" * 1001])
def test_a_truth_that_cannot_be_used_is_unscored(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not an answer"):
        score_math("\\boxed{5}", truth, {})


def test_what_is_not_understood_here_is_compared_by_math_verify() -> None:
    assert asyncio.run(score_answer(MATH, r"\boxed{\int_0^2 x\,dx}", "2")) == 1.0
    assert asyncio.run(score_answer(MATH, r"\boxed{\int_0^2 x\,dx}", "3")) == 0.0


def test_equal_answers_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.compare(r"\sum_{k=1}^{8} k", "36", 5.0)
    monkeypatch.setattr(worker, "workers", None)
    assert worker.compare(r"\sum_{k=1}^{8} k", "36", 5.0)


async def test_the_event_loop_goes_on_while_a_process_compares() -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    ticking = asyncio.create_task(tick())
    started = time.perf_counter()
    await asyncio.gather(*(score_answer(MATH, rf"\boxed{{\sum_{{k=1}}^{{{n}}} k}}", "0") for n in range(20, 40)))
    ticking.cancel()
    assert ticks > min(5, (time.perf_counter() - started) * 50)
