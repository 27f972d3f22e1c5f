"""`gateway_agent`: how an episode ends, and what the program gets, with real programs and a scripted policy."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent_rl.agents.episode.budget import EpisodeLimits
from agent_rl.agents.episode.loop import EpisodeSetup
from agent_rl.agents.episode.policy import ScriptedPolicy
from agent_rl.agents.registry import make_loop
from agent_rl.agents.sessions.program import PACKAGE, address_for
from agent_rl.agents.sessions.server import gateway
from agent_rl.environments.kind import NAME, ROW
from agent_rl.errors import ConfigError
from agent_rl.settings import AgentRLSettings
from agent_rl.trajectory import StopReason, Trajectory
from tests.support.http_faults import FaultyServer, answer

ASK = """
import json, os, sys, urllib.request
def post(path, body):
    request = urllib.request.Request(os.environ["AGENT_RL_GATEWAY"] + path, json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))
def ask(text):
    return post("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": text}]})
row = json.load(open(os.environ["AGENT_RL_ROW_FILE"]))
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs an episode of a program with this text, and returns the trajectory."""

    def episode(
        program: str,
        *turns: str,
        environments: dict[str, str] | None = None,
        values: dict[str, Any] | None = None,
        limits: EpisodeLimits | None = None,
        **settings: Any,
    ) -> Trajectory:
        (tmp_path / "program.py").write_text(ASK + program)
        section = {"command": f"{sys.executable} {tmp_path}/program.py", **settings}
        sections = {"gateway": section, "environments": environments or {}}
        given = AgentRLSettings.from_config({"agent_rl": sections})
        loop = make_loop("gateway_agent", EpisodeSetup(given, limits or EpisodeLimits()))
        world = {NAME: next(iter(environments)), ROW: json.dumps(values)} if environments else {}
        row = {
            "raw_prompt": [{"role": "user", "content": "6 * 7?"}],
            "data_source": "gsm8k",
            "extra_info": {"index": 3, **world},
            "reward_model": {"ground_truth": "42"},
        }

        async def main() -> Trajectory:
            try:
                return await loop.run_row(row, ScriptedPolicy(turns), loop.format())
            finally:
                await gateway().stop()

        return asyncio.run(main())

    return episode


def test_the_answer_is_the_last_message(run: Any) -> None:
    trajectory = run('ask(row["prompt"][0]["content"])', "It is 42.")
    assert (trajectory.answer, trajectory.stop_reason, trajectory.error) == ("It is 42.", StopReason.ANSWERED, None)
    assert trajectory.prompt[0].content == "6 * 7?"
    assert 0 < trajectory.seconds < trajectory.ended


def test_the_program_gets_the_row_without_ground_truth_and_secrets(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hidden")
    monkeypatch.setenv("OTHER_TOKEN", "named")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([f"{PACKAGE}/cpu/stand_ins", f"{PACKAGE}_mine"]))
    write = f'json.dump([row, dict(os.environ)], open("{tmp_path}/seen.json", "w")); ask("?")'
    run(write, "Yes.", environment=["OTHER_TOKEN"])
    row, environment = json.loads((tmp_path / "seen.json").read_text())
    assert row == {"prompt": [{"role": "user", "content": "6 * 7?"}], "extra_info": {"index": 3}}
    assert "MY_TOKEN" not in environment
    assert environment["OTHER_TOKEN"] == "named"
    assert environment["OPENAI_AGENTS_DISABLE_TRACING"] == "1"
    assert environment["PYTHONPATH"] == f"{PACKAGE}_mine"
    run(write, "Yes.", ground_truth=True)
    assert json.loads((tmp_path / "seen.json").read_text())[0]["ground_truth"] == "42"


def test_a_program_that_fails_before_its_first_request_is_the_users_bug(run: Any) -> None:
    trajectory = run("raise ValueError('no key')")
    assert trajectory.info["bug"].startswith("ValueError at ")
    assert trajectory.info["bug"].endswith("/program.py:10")
    said = "the program exited with code 1: ValueError: no key"
    assert trajectory.error == f"{said} ({trajectory.info['bug']})"


def test_a_crash_after_a_turn_is_scored_with_zero(run: Any) -> None:
    trajectory = run('ask("?"); sys.exit(3)', "Yes.")
    assert (trajectory.error, trajectory.verdict, trajectory.stop_reason) == (None, 0.0, StopReason.STOPPED)
    assert trajectory.info["program"].startswith("the program exited with code 3")
    assert "bug" not in trajectory.info
    assert trajectory.answer is None  # otherwise a scorer would judge it


def test_a_traceback_after_a_turn_is_scored_and_reported_as_a_bug(run: Any) -> None:
    """Its message may differ, and so may the library in which it ends."""
    bugs = {run('ask("?"); int(ask("?")["choices"][0]["message"]["content"])', "a", text).info["bug"] for text in "bc"}
    assert len(bugs) == 1
    recursion = 'def f(n):\n    return g(n - 1) if n else json.loads("{" * 5)\ndef g(n):\n    return f(n)\nf(300)'
    deep = run(f'ask("?")\n{recursion}', "Yes.")  # the end of this output has no first line of a traceback
    assert (deep.verdict, deep.error) == (0.0, None)
    assert deep.info["bug"].startswith("json.decoder.JSONDecodeError at ")
    assert deep.info["bug"].endswith("/program.py:12")


def test_output_that_is_no_traceback_is_not_a_bug(run: Any) -> None:
    trajectory = run("""ask("?"); print('parsing File "x.csv", line 3 failed'); sys.exit(3)""", "Yes.")
    assert (trajectory.verdict, trajectory.info.get("bug")) == (0.0, None)


def test_a_crash_at_a_limit_is_the_policys(run: Any) -> None:
    trajectory = run('ask("?"); ask("?")', "Yes.", limits=EpisodeLimits(max_assistant_turns=1))
    assert "HTTP Error 400" in trajectory.info["program"]
    assert (trajectory.verdict, trajectory.info.get("bug")) == (0.0, None)


def test_a_fault_of_the_gateway_leaves_the_episode_unscored(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("agent_rl.agents.sessions.session.read_turn", broken)
    trajectory = run('ask("?")', "Yes.")
    assert (trajectory.stop_reason, trajectory.verdict) == (StopReason.ERROR, None)
    assert "KeyError: 'ours'" in str(trajectory.error)


def test_a_program_may_send_its_reward(run: Any) -> None:
    trajectory = run('ask("?"); post("/session/reward", {"reward": 0.25}); sys.exit(1)', "Yes.")
    assert trajectory.verdict == 0.25


def test_a_program_that_does_not_end_is_killed_with_its_children(run: Any, tmp_path: Path) -> None:
    child = f"\"import time; time.sleep(2); open(r'{tmp_path}/late', 'w')\""
    trajectory = run(
        f'ask("?"); import subprocess, time; subprocess.Popen([sys.executable, "-c", {child}]); time.sleep(60)',
        "Yes.",
        timeout_s=1.5,
    )
    assert trajectory.verdict == 0.0
    assert "did not finish within 1.5 s" in trajectory.info["program"]
    assert not (tmp_path / "late").exists()


def test_an_engine_failure_leaves_the_episode_unscored(run: Any) -> None:
    trajectory = run('ask("?")')  # the script has no turn
    assert trajectory.stop_reason is StopReason.ENGINE_ERROR
    assert "the script has 0 messages" in str(trajectory.error)


def test_an_endpoint_runs_the_agent(run: Any) -> None:
    """It gets the row, the address and the key, and answers when the agent has finished."""

    def agent(handler: Any) -> None:
        asked = json.loads(handler.body)
        body = {"model": "m", "messages": asked["row"]["prompt"]}
        headers = {"Authorization": f"Bearer {asked['api_key']}"}
        httpx.post(f"{asked['base_url']}/chat/completions", json=body, headers=headers).raise_for_status()
        answer(200, {})(handler)

    with FaultyServer(default=agent) as server:
        assert run("", "It is 42.", command=None, url=server.url).answer == "It is 42."
    trajectory = run("", command=None, url=server.url)
    assert "does not answer" in str(trajectory.error)


def test_an_endpoint_elsewhere_gets_an_address_that_it_can_reach(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert address_for(None) == address_for("http://localhost:1/run") == "127.0.0.1"
    with pytest.raises(ConfigError, match=r"gateway.url: the host 'no-such-host.invalid' cannot be reached"):
        run("", command=None, url="http://no-such-host.invalid:1/run")
    monkeypatch.setattr("agent_rl.agents.gateway.address_for", lambda url: "127.0.0.2")  # as on another network
    trajectory = run('ask(os.environ["OPENAI_BASE_URL"])', "Yes.")
    assert (trajectory.answer, trajectory.turns[0].text) == ("Yes.", "Yes.")
    assert "http://127.0.0.2:" in str(trajectory.to_dict())


WORLD = """
from agent_rl import Environment

class Capitals(Environment):
    '''Name capitals.'''

    data = "unused.parquet"

    def reset(self, country, capital):
        self.capital = capital
        return f"Which city is the capital of {country}?"

    def look_up(self) -> str:
        '''The capital.'''
        return self.capital

    def get_reward(self):
        REWARD
"""
FRANCE = {"country": "France", "capital": "Paris"}


@pytest.fixture
def world(tmp_path: Path) -> Any:
    """Writes an environment whose `get_reward` is this statement."""

    def write(reward: str) -> dict[str, str]:
        (tmp_path / f"world{len(list(tmp_path.glob('world*')))}.py").write_text(WORLD.replace("REWARD", reward))
        return {"capitals": str(max(tmp_path.glob("world*")))}

    return write


def test_an_environment_asks_and_judges_and_offers_no_tool(run: Any, world: Any, tmp_path: Path) -> None:
    seen = f'json.dump(row, open("{tmp_path}/seen.json", "w")); ask(row["prompt"][0]["content"])'
    judge = "return float(self.answer == self.capital and len(self.trajectory.turns) == 1)"
    right = run(seen, "Paris", environments=world(judge), values=FRANCE)
    assert (right.verdict, right.stop_reason, right.error) == (1.0, StopReason.ANSWERED, None)
    row = json.loads((tmp_path / "seen.json").read_text())
    assert row["prompt"] == [{"role": "user", "content": "6 * 7?\n\nWhich city is the capital of France?"}]
    assert row["extra_info"] == {"index": 3, "environment": "capitals"}  # without the capital
    assert run(seen, "Lyon", environments=world(judge), values=FRANCE).verdict == 0.0
    run(seen, "Lyon", environments=world(judge), values=FRANCE, ground_truth=True)
    assert json.loads(json.loads((tmp_path / "seen.json").read_text())["extra_info"][ROW]) == FRANCE


def test_the_parts_of_an_environments_reward_are_0_after_a_crash(run: Any, world: Any) -> None:
    parts = world("return {'right': self.answer == self.capital, 'short': 1.0}")
    assert run('ask("?")', "Paris", environments=parts, values=FRANCE).rewards == {"right": 1.0, "short": 1.0}
    program = 'ask("?"); post("/session/reward", {"reward": 1}); sys.exit(1)'
    crashed = run(program, "Paris", environments=parts, values=FRANCE)
    assert (crashed.rewards, crashed.verdict, crashed.error) == ({"right": 0.0, "short": 0.0}, 0.0, None)


def test_a_bug_of_an_environment_leaves_the_episode_unscored(run: Any, world: Any) -> None:
    trajectory = run('ask("?")', "Paris", environments=world("return 1 / 0"), values=FRANCE)
    assert trajectory.stop_reason is StopReason.ERROR
    assert "Capitals.get_reward failed" in str(trajectory.error)
    assert trajectory.info["bug"].startswith("ZeroDivisionError at ")
