import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from agent_rl.errors import UnscoredError
from agent_rl.rewards.scorers import SCORERS, score_answer, score_now
from agent_rl.rewards.scorers.math import worker as _worker
from agent_rl.rewards.scorers.math.math_answer import extract_math, score_math

CORPUS = Path(__file__).parents[2] / "corpus"
MATH = SCORERS["math"]


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text().splitlines()]


def test_every_label_of_the_mathematical_corpus_is_kept() -> None:
    found = cases("math.jsonl")
    wrong = [
        case for case in found if score_now(MATH, f"so \\boxed{{{case['answer']}}}.", case["truth"]) != case["equal"]
    ]
    assert len(found) >= 400
    assert wrong == []


def test_every_label_of_the_corpus_of_answers_in_prose_is_kept() -> None:
    found = cases("extraction.jsonl")
    wrong = [
        case
        for case in found
        if score_now(SCORERS[case["scorer"]], case["solution"], case["truth"]) != pytest.approx(case["score"])
    ]
    assert len(found) >= 200
    assert wrong == []


@pytest.mark.parametrize("strict", ["math", "math_strict"])
@pytest.mark.parametrize(
    "answer",
    [r"5 \\ 6", "5 | 6", r"5 \lor 6", r"5, \ldots, 6", r"5 \equiv 6", r"5 \to 6", "x = 5 = 6"],
)
def test_values_joined_by_a_sign_are_none_of_them(answer: str, strict: str) -> None:
    assert [score_now(SCORERS[strict], f"\\boxed{{{answer}}}", truth) for truth in ("5", "6")] == [0, 0]


def test_a_ratio_is_its_value() -> None:
    assert score_now(SCORERS["math_strict"], "\\boxed{10:20}", "5:10") == 1.0


@pytest.mark.parametrize("truth", [None, "", "  ", [], True, {"a": 1}, ["5", None], "x" * 1001])
def test_a_truth_that_cannot_be_used_is_unscored(truth: Any) -> None:
    with pytest.raises(UnscoredError, match="ground truth is not an answer"):
        score_math("\\boxed{5}", truth, {})


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>\\boxed{5}</answer> \\boxed{6}", "5"),
        ("\\boxed{1} and \\boxed{2}", "1, 2"),
        ("\\boxed{5", None),
        ("The answer is $x^2$. Done.", "x^2"),
        ("The answer is 12 since it is", "12"),
        ("It takes 3 steps and then 4", "4"),
        ("only words", "only words"),
        ("<answer>cut", None),
        ("", None),
    ],
)
def test_the_answer_is_extracted_from_the_text(text: str, answer: str | None) -> None:
    assert extract_math(text) == answer


def test_what_is_not_understood_here_is_compared_by_math_verify() -> None:
    assert asyncio.run(score_answer(MATH, r"\boxed{\int_0^2 x\,dx}", "2")) == 1.0
    assert asyncio.run(score_answer(MATH, r"\boxed{\int_0^2 x\,dx}", "3")) == 0.0


def test_a_hang_costs_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _worker.compare(r"\sum_{k=1}^{3} k", "6").result()
    pids = {child.pid for _, child in _worker._pool.workers.idle}
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(_worker, "ANSWER_S", 0.2)
    hung = [_worker.compare(rf"\sum_{{k=1}}^{{{n}}} k", "1") for n in range(4, 4 + len(pids))]
    assert [future.result(30) for future in hung] == [False] * len(hung)
    monkeypatch.undo()
    assert _worker.compare(r"\sum_{k=1}^{5} k", "15").result(60)
    assert not pids & {child.pid for _, child in _worker._pool.workers.idle}


def test_a_process_that_dies_is_replaced() -> None:
    assert _worker.compare(r"\sum_{k=1}^{3} k", "6").result()
    for _, child in list(_worker._pool.workers.idle):
        child.kill()
        child.wait()
    assert _worker.compare(r"\sum_{k=1}^{6} k", "21").result(60)


def test_without_a_worker_process_it_is_unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_worker, "_PROGRAM", Path("missing.py"))
    monkeypatch.setattr(_worker, "_pool", _worker._Pool())
    with pytest.raises(UnscoredError, match="does not start"):
        asyncio.run(score_answer(MATH, r"\boxed{\sum_{k=1}^{77} k}", "1"))


def test_a_process_is_given_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "sk-not-for-others")
    monkeypatch.setenv("A_NAME_THAT_SAYS_NOTHING", "hush-hush")
    monkeypatch.setattr(_worker, "_pool", _worker._Pool())
    assert _worker.compare(r"\sum_{k=1}^{3} k", "6").result(60)
    ((_, child),) = _worker._pool.workers.idle
    environment = Path(f"/proc/{child.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"hush" not in environment
    assert b"sk-not" not in environment
    _worker._pool.workers.close()


def test_equal_answers_are_compared_once() -> None:
    first = _worker.compare(r"\sum_{k=1}^{8} k", "36")
    assert _worker.compare(r"\sum_{k=1}^{8} k", "36") is first


def test_the_event_loop_goes_on_while_a_process_compares() -> None:
    async def measure() -> tuple[float, int]:
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
        return time.perf_counter() - started, ticks

    seconds, ticks = asyncio.run(measure())
    assert ticks > min(5, seconds * 50)
