"""Grading on a server that answers as Sandbox Fusion does, without its isolation."""

import asyncio
import functools
import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_rl.errors import ConfigError
from agent_rl.remote import RemoteError
from agent_rl.rewards import compute_score
from agent_rl.sandbox import grade
from agent_rl.sandbox.fusion import FusionServer, grade_remotely
from tests.support.fusion_server import SANDBOX_ERROR, run_code
from tests.support.http_faults import FaultyServer

pytestmark = pytest.mark.usefixtures("quick_delays")

ADD = "from dataclasses import dataclass\ndef add(a: int, b: List[int]):\n    print('noise')\n    return a + b[0]\n"
CALLS = [{"fn_name": "add", "args": [1, [2]], "expected": 3}, {"fn_name": "add", "args": [1, [3]], "expected": 5}]


async def test_functions_and_programs_are_graded():
    program = "a, b = map(int, input().split())\nprint(a + b)"
    with FaultyServer(default=run_code) as server:
        place = FusionServer(server.url, timeout_s=5)
        calls = await grade_remotely(ADD, CALLS, place)
        assert not any("expected" in request.body.decode() for request in server.requests)
        lines = await grade_remotely(program, {"inputs": ["1 2", "x"], "outputs": ["3\n", ""]}, place)
        method = "class Solution:\n    def add(self, a, b):\n        return {'sum': (a, b)}"
        expected = [{"fn_name": "add", "args": [1, 2], "expected": {"sum": [1, 2]}}]
        assert (await grade_remotely(method, expected, place)).fraction == 1.0
    assert [case.passed for case in calls.cases] == [True, False]
    assert [case.passed for case in lines.cases] == [True, False]


@pytest.mark.parametrize(
    ("code", "argument", "expected"),
    [
        ("def f(x): return x > 1", math.inf, True),
        ("def f(x): return x != x", math.nan, True),
        ("def f(x): return len(x)", {1, 2}, 2),
        ("def f(x): return len(str(x))", functools.reduce(lambda inner, _: [inner], range(300), 1), 601),
        ("from __future__ import annotations\ndef f(x: List): return heappop(x)", [3, 2], 3),
        ("def f(x): return x\nif __name__ == '__main__':\n    f(int(input()))", 1, 1),
        ("def f(x): return 1\nclass Solution:\n    def f(self, x): return 2", 0, 2),
    ],
    ids=["infinity", "nan", "set", "nesting", "imports", "module", "method"],
)
def test_calls_are_the_same_as_in_the_sandbox_of_this_machine(code, argument, expected, box):
    tests = [{"fn_name": "f", "args": [argument], "expected": expected}]
    with FaultyServer(default=run_code) as server:
        assert asyncio.run(grade_remotely(code, tests, FusionServer(server.url))).fraction == 1.0
    assert box.do(grade(code, tests, sandbox=box.sandbox)).fraction == 1.0


async def test_leaving_early_and_taking_too_long_are_not_passing():
    with FaultyServer(default=run_code) as server:
        place = FusionServer(server.url, timeout_s=0.5)
        for code in ("print(3); raise SystemExit", "while True: pass", "def add(a, b): return 'x' * 10_000"):
            assert (await grade_remotely(code, CALLS[:1], place)).passed == 0


def test_verls_arguments_send_programs_there():
    semaphore = threading.Semaphore(1)
    truth = json.dumps({"inputs": ["1 2", "2 3"], "outputs": ["3", "5"]})
    text = "```python\nprint(sum(map(int, input().split())))\n```"
    with FaultyServer(default=run_code) as server:
        url = f"{server.url}/run_code"
        arguments = {"sandbox_fusion_url": url, "concurrent_semaphore": semaphore, "memory_limit_mb": 64}
        assert compute_score("taco", text, truth, {}, **arguments) == 1.0
        assert compute_score("taco", "", truth, {}, **arguments) == 0.0
        assert server.most_at_once == 1
    assert semaphore.acquire(blocking=False)


async def test_a_server_that_fails_is_unscored():
    with FaultyServer(default=SANDBOX_ERROR) as server, pytest.raises(RemoteError, match="internal error"):
        await grade_remotely(ADD, CALLS, FusionServer(server.url))
    with pytest.raises(ConfigError, match="the list is empty"):
        await grade_remotely(ADD, [], FusionServer("http://localhost:1"))


async def test_waiting_for_the_semaphore_takes_no_thread_from_the_lookup_of_the_server():
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # also looks up the names of hosts
    tests = {"inputs": ["", "", ""], "outputs": ["1", "1", "1"]}
    with FaultyServer(default=run_code) as server:
        place = FusionServer(server.url.replace("127.0.0.1", "localhost"), semaphore=threading.Semaphore(1))
        assert (await asyncio.wait_for(grade_remotely("print(1)", tests, place), 30)).fraction == 1.0


async def test_cases_that_a_failure_cancels_do_not_keep_the_semaphore():
    semaphore, tests = threading.Semaphore(2), {"inputs": [""] * 6, "outputs": ["1"] * 6}
    with FaultyServer(default=SANDBOX_ERROR) as server:
        for _ in range(2):
            with pytest.raises(RemoteError, match="internal error"):
                await grade_remotely("print(1)", tests, FusionServer(server.url, semaphore=semaphore))
    assert semaphore.acquire(blocking=False)
    assert semaphore.acquire(blocking=False)


@pytest.mark.parametrize("url", ["localhost:8080/run_code", "http:/localhost:8080", "http://"])
def test_an_address_that_is_no_url_is_not_a_score_of_zero(url):
    with pytest.raises(ConfigError, match=r"reward\.sandbox_fusion\.url: expected a URL"):
        compute_score("taco", "print(1)", {"inputs": [""], "outputs": ["1"]}, sandbox_fusion_url=url)
