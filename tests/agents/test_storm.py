"""Hundreds of trajectories while tools raise, hang and die: each ends with a reason, and nothing is left behind."""

import asyncio
import contextlib
import random
import signal
from collections import Counter

import psutil
import pytest

from agent_rl.agents.episode.episode import EpisodeBudget, run_episode
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.react import ReactFormat
from agent_rl.sandbox.jail.run_queue import PATIENCE
from agent_rl.tools import ToolSession, load_tools
from agent_rl.trajectory import StopReason, ToolStatus
from tests.support.descriptors import descriptors, left_open
from tests.support.profiles import bounded, times

pytestmark = [bounded, pytest.mark.slow]

TRAJECTORIES, AT_ONCE, CALLS = times(300, full=2_000), 256, 3
LIMIT_S, GRACE_S = 1.0, 2.0
AT_A_TIME = 24
KILLS = TRAJECTORIES // 300

TOOLS = f"""
tools:
  - name: python
    config: {{mode: stateless, timeout_s: {LIMIT_S}, packages: []}}
    max_concurrency: {AT_A_TIME}
"""

FINE = "print(6 * 7)"
RAISING = "raise ValueError('a mistake')"
HANGING = (*["import time; time.sleep(600)", "import threading; threading.Event().wait()"] * 4, "while True: pass")
DYING = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def scripts():
    """The codes of each trajectory's calls: 5% raise, 5% hang, 1% kill their worker."""
    total = TRAJECTORIES * CALLS
    codes = (
        [RAISING] * (total // 20) + [HANGING[n % len(HANGING)] for n in range(total // 20)] + [DYING] * (total // 100)
    )
    codes += [FINE] * (total - len(codes))
    random.Random(0).shuffle(codes)
    return [codes[start : start + CALLS] for start in range(0, total, CALLS)]


async def kill_hosts(done):
    """Kill the processes that the programs are forked from, whenever so many more trajectories are done."""
    killed = 0
    for kill in range(1, KILLS + 1):
        while len(done) < TRAJECTORIES * kill / (KILLS + 1):  # noqa: ASYNC110 - a poll is simpler than an event
            await asyncio.sleep(0.01)
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no command line
                if any("sandbox" in argument for argument in process.cmdline()):
                    process.send_signal(signal.SIGKILL)
                    killed += 1
    return killed


async def trajectory(specs, codes, gate, done):
    turns = [f"Action: python\nAction Input: {code}" for code in codes]
    policy = ScriptedPolicy([*turns, "Final Answer: 42"])
    async with gate, ToolSession(specs, default_timeout_s=60) as session:
        done.append(await run_episode(policy, ReactFormat(), session, [], EpisodeBudget()))


@pytest.fixture(scope="module")
def storm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("storm")
    (folder / "tools.yaml").write_text(TOOLS)
    specs = load_tools(folder / "tools.yaml")
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    opened = descriptors()

    async def main():
        gate, done = asyncio.Semaphore(AT_ONCE), []
        running = [trajectory(specs, codes, gate, done) for codes in scripts()]
        killed, *_ = await asyncio.gather(kill_hosts(done), *running)
        return done, killed

    trajectories, killed = asyncio.run(main())
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    return trajectories, killed, left, left_open(opened)


def test_every_trajectory_ends_with_a_reason(storm):
    trajectories, killed, _, _ = storm
    assert killed > 0
    reasons = Counter(trajectory.stop_reason for trajectory in trajectories)
    assert sum(reasons.values()) == TRAJECTORIES
    assert set(reasons) <= {StopReason.ANSWERED, StopReason.ERROR}
    assert reasons[StopReason.ANSWERED] > TRAJECTORIES * 0.9
    for each in trajectories:
        assert (each.error is None) == (each.stop_reason is StopReason.ANSWERED)
        if each.error:
            assert "sandbox failed" in each.error
        else:
            assert len(each.results) == CALLS


def test_every_call_gets_its_expected_status(storm):
    for trajectory in storm[0]:
        for turn in trajectory.turns:
            for call, result in zip(turn.calls, turn.results, strict=False):  # the call that failed has no result
                code = call.arguments["code"]
                if code == FINE:
                    assert (result.status, result.text) == (ToolStatus.OK, "42")
                elif code in HANGING:
                    assert result.status is ToolStatus.TIMEOUT, result
                else:
                    assert result.status is ToolStatus.ERROR, result


def test_no_call_outlives_its_limit(storm):
    """By the clock, of which the seconds of waiting for a core do not count."""
    longest = max(result.seconds for trajectory in storm[0] for result in trajectory.results)
    assert longest < PATIENCE * LIMIT_S + GRACE_S


def test_nothing_is_left_behind(storm):
    _, _, processes, left = storm
    assert processes == set()
    assert not left
