"""What our scorers cost against verl's own and math-verify, and how long they hold up an event loop.

What is remembered of answers is forgotten before each round.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

pytest.importorskip("verl")

from verl.utils.reward_score import default_compute_score

from agent_rl.rewards import SCORERS, compute_score, score_answer
from agent_rl.rewards.scorers import score_now
from agent_rl.rewards.scorers.math import forms as _forms
from agent_rl.rewards.scorers.math import math_answer
from agent_rl.rewards.scorers.math import worker as _worker
from tests.rewards.scorers.test_hostile import TEXTS, TRUTHS

pytestmark = pytest.mark.benchmark

CORPUS = Path(__file__).parent.parent / "rewards" / "corpus"
WORDING = "First I look at what is given, then I write down what follows from it, step by step, and check it. "
BLOCK_MS = 50.0


def forget() -> None:
    math_answer._decide.cache_clear()
    _forms.read.cache_clear()
    _worker._pool._known.clear()


PLAIN = {
    "gsm8k, ####": ("openai/gsm8k", WORDING * 6 + "\n#### 1234", "1234"),
    "gsm8k, with a comma": ("openai/gsm8k", WORDING * 6 + "\n#### 1,234", "1234"),
    "gsm8k, wrong": ("openai/gsm8k", WORDING * 6 + "\n#### 17", "1234"),
    "qa": ("searchR1_nq", "<answer>Paris</answer>", {"target": ["Paris"]}),
    "qa, long": ("searchR1_nq", WORDING * 6 + "<answer>The Paris, France</answer>", {"target": ["Rome", "Paris"]}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_strings_cost_no_more_than_by_verls_own(name: str) -> None:
    def seconds(score: Callable[..., Any]) -> float:
        with contextlib.redirect_stdout(io.StringIO()):
            started = time.process_time()
            for _ in range(5_000):
                score(*PLAIN[name], {})
            return time.process_time() - started

    times = [(seconds(default_compute_score), seconds(compute_score)) for _ in range(15)]
    share = min(theirs for theirs, _ in times) / min(own for _, own in times)
    print(f"\n{name}: {share:.2f} times verl's own", end="")
    assert share >= 1.0


@pytest.mark.filterwarnings("ignore")
def test_mathematics_costs_a_fraction_of_math_verify() -> None:
    from math_verify import parse, verify

    lines = map(json.loads, (CORPUS / "math.jsonl").read_text().splitlines())
    cases = [case for case in lines if "9^{9" not in case["answer"] and "10^{9}" not in case["answer"]]

    def ours() -> None:
        forget()
        for case in cases:
            score_now(SCORERS["math_strict"], f"So it is $\\boxed{{{case['answer']}}}$.", case["truth"])

    def theirs() -> None:
        for case in cases:
            with contextlib.suppress(Exception):
                verify(parse(f"\\boxed{{{case['truth']}}}"), parse(f"So it is $\\boxed{{{case['answer']}}}$."))

    def seconds(run: Callable[[], None]) -> float:
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run()
        return time.perf_counter() - started

    for each in (ours, theirs):
        seconds(each)
    share = median(seconds(theirs) / seconds(ours) for _ in range(3))
    print(f"\nmath_strict: {share:.1f} times math-verify", end="")
    assert share >= 3.7


@pytest.mark.filterwarnings("ignore")
def test_nothing_holds_up_the_event_loop() -> None:
    """The longest time between two turns of a task that does nothing, while hostile texts are scored.

    The lesser of two tries, for other load on the machine is not ours.
    """

    async def longest(name: str, text: str) -> float:
        worst = 0.0
        forget()
        done = asyncio.ensure_future(score_answer(SCORERS[name], text, TRUTHS[name]))
        while not done.done():
            started = time.perf_counter()
            await asyncio.sleep(0)
            worst = max(worst, time.perf_counter() - started)
        done.exception()
        return worst

    async def measure() -> list[tuple[float, str, str]]:
        await score_answer(SCORERS["code"], "print(18)", TRUTHS["code"])  # the sandbox is started
        found = []
        for name in TRUTHS:
            for title, text in TEXTS.items():
                found.append((min([await longest(name, text), await longest(name, text)]), name, title))
        return sorted(found, reverse=True)

    blocks = asyncio.run(measure())
    for seconds, name, title in blocks[:5]:
        print(f"\n{1000 * seconds:.1f} ms: {name}, {title}", end="")
    assert 1000 * blocks[0][0] <= BLOCK_MS
