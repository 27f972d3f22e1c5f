import asyncio
import multiprocessing
import subprocess
import sys
import threading
from typing import Any

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.rewards.scorers.scorer import Scorer, score_answer, score_now, unusable


def where(solution: str, ground_truth: Any, extra_info: Any) -> float:
    return float(threading.current_thread() is threading.main_thread())


async def waits(solution: str, ground_truth: Any, extra_info: Any) -> float:
    await asyncio.sleep(0.01)
    return 0.5


def test_only_what_is_bounded_runs_in_the_event_loop() -> None:
    assert asyncio.run(score_answer(Scorer("where", where, inline=True), "", "")) == 1.0
    assert asyncio.run(score_answer(Scorer("where", where), "", "")) == 0.0


def test_a_scorer_that_waits_is_waited_for_with_and_without_a_loop() -> None:
    scorer = Scorer("waits", waits)
    assert asyncio.run(score_answer(scorer, "", "")) == 0.5
    assert score_now(scorer, "", "") == 0.5


def in_a_child() -> None:
    assert score_now(Scorer("waits", waits), "", "") == 0.5


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_loop_of_its_own() -> None:
    in_a_child()
    child = multiprocessing.get_context("fork").Process(target=in_a_child)
    child.start()
    child.join(30)
    assert child.exitcode == 0


@pytest.mark.parametrize("result", [None, "good", {"acc": 1.0}, {"score": None}])
def test_what_is_no_score_is_the_authors_mistake(result: Any) -> None:
    with pytest.raises(ConfigError, match="scorer mine: the scorer returned"):
        score_now(Scorer("mine", lambda *_: result), "", "")


@pytest.mark.parametrize("result", [float("nan"), {"score": float("inf")}])
def test_what_is_no_number_is_unscored(result: Any) -> None:
    with pytest.raises(UnscoredError, match="the mine scorer returned"):
        score_now(Scorer("mine", lambda *_: result), "", "")


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError])
def test_what_a_users_scorer_raises_is_passed_on(error: type[Exception]) -> None:
    def mine(solution_str: str, ground_truth: Any, extra_info: Any) -> float:
        raise error("mine")

    with pytest.raises(error, match="mine"):
        asyncio.run(score_answer(Scorer("mine", mine), "42", "42"))
    with pytest.raises(error, match="mine"):
        score_now(Scorer("mine", mine), "42", "42")


SCRIPT = """
import asyncio, atexit, gc, json

def report():  # after every other handler
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    print(f"{len(tasks)} tasks are left")

atexit.register(report)

from agent_rl.rewards import compute_score
program = "```python\\nprint(input())\\n```"
print(compute_score("codecontests", program, json.dumps([{"input": "1", "output": "1"}])))
"""


def test_a_plain_script_leaves_no_task_behind() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1.0\n0 tasks are left\n"
    assert done.stderr == ""


def test_an_unusable_ground_truth_is_shown_in_short() -> None:
    assert len(str(unusable("9" * 10_000, "a number"))) < 200
