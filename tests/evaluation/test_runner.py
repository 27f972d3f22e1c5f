"""Evaluations over real HTTP, in this process."""

import asyncio
import shlex
import sys

import pytest
from typer.testing import CliRunner

from agent_rl.agents.policies.chat import ChatEndpoint
from agent_rl.agents.policies.source import open_client
from agent_rl.cli.main import app
from agent_rl.data import make_row, write_parquet
from agent_rl.errors import ConfigError, EngineError, FatalError
from agent_rl.evaluation import runner
from agent_rl.evaluation.ledger import Ledger
from agent_rl.evaluation.runner import Evaluation, columns, run
from agent_rl.evaluation.settings import read_settings
from agent_rl.evaluation.summary import summarize
from agent_rl.settings.user_code import UserCodeError
from agent_rl.trajectory import trace
from tests.support.openai_server import MODEL, Server


def settings(data, tools, *words, **flags):
    return read_settings({"data": data, "tools": tools, "model": MODEL, **flags}, ["seed=0", *words])


def evaluate(folder, given, server=None):
    async def all_of_it():
        async with server or Server() as running:
            with Ledger(folder, given) as ledger:
                async with ChatEndpoint(open_client(running.url, MODEL, timeout_s=5), given.sampling) as source:
                    await run(Evaluation.load(given), source, ledger, lambda record: None)
                return ledger.read()

    return asyncio.run(all_of_it())


def test_every_row_is_run_so_many_times_and_scored(tmp_path, data, tools):
    given = settings(data, tools, n=3)
    records = evaluate(tmp_path / "out", given)
    assert set(records) == {(row, sample) for row in range(12) for sample in range(3)}
    trajectories = list(trace.read(tmp_path / "out/trajectories.jsonl"))
    assert len(trajectories) == 36
    for trajectory in trajectories:
        assert trajectory.agent == "react_agent"
        assert trajectory.score.components["correctness"] == float(trajectory.answer == trajectory.ground_truth)
        assert trajectory.info["requests"] == len(trajectory.turns)
        assert all(result.text.isdigit() for result in trajectory.results)
    assert len({trajectory.tool_calls for trajectory in trajectories}) > 1
    summary = summarize(records.values(), rows=12, n=3)
    right = sum(trajectory.answer == trajectory.ground_truth for trajectory in trajectories)
    assert 0 < right < 36
    assert summary["all"]["pass"]["1"]["mean"] == pytest.approx(right / 36, abs=1e-6)
    assert set(summary["data_sources"]) == {"gsm8k_even", "gsm8k_odd"}
    assert summary["all"]["tokens"]["requests"] == sum(len(trajectory.turns) for trajectory in trajectories)


def test_a_policy_is_shown_the_images_of_a_row_or_the_rows_are_refused(tmp_path, tools):
    from PIL import Image

    Image.new("RGB", (5, 3), "red").save(tmp_path / "red.png")
    row = make_row(
        prompt="<image>Which of <image> is red?", images=[Image.new("L", (4, 4)), str(tmp_path / "red.png")],
        data_source="gsm8k", ground_truth="2", split="test", index=0,
    )  # fmt: skip
    write_parquet([row], tmp_path / "rows.parquet")
    evaluation = Evaluation.load(settings(str(tmp_path / "rows.parquet"), tools))
    (message,) = columns(evaluation.rows[0], 0, 0)["raw_prompt"]
    first, said, second, asked = message["content"]
    assert [first["image"].size, second["image"].size, second["image"].getpixel((0, 0))] == [
        (4, 4),
        (5, 3),
        (255, 0, 0),
    ]
    assert (said["text"], asked["text"]) == ("Which of ", " is red?")
    with pytest.raises(ConfigError, match="the rows contain images, which policy=sglang cannot show"):
        Evaluation.load(settings(str(tmp_path / "rows.parquet"), tools, "policy=sglang"))


ABILITY = """
from agent_rl import Component
from agent_rl.rewards import Value

class Ability(Component):
    async def measure(self, trajectory):
        return Value(len(trajectory.row["ability"]) + trajectory.extra_info["index"])
"""


def test_a_component_sees_the_rows_columns_and_ends_the_evaluation_where_it_raises(tmp_path, data, tools):
    (tmp_path / "mine.py").write_text(ABILITY.replace("Value(", "Value(1 / (2 - trajectory.extra_info['index']) + "))
    words = f"agent_rl.reward.components.ability.kind={tmp_path}/mine.py:Ability", "concurrency=1"
    with pytest.raises(UserCodeError, match=f"ability failed at {tmp_path}/mine.py:7: ZeroDivisionError") as caught:
        evaluate(tmp_path / "out", settings(data, tools, *words))
    kept = list(trace.read(tmp_path / "out/trajectories.jsonl"))
    assert [(each.info["row"], each.score.components["ability"]) for each in kept] == [(0, 4.5), (1, 6.0)]
    command = shlex.split(str(caught.value).partition("Repeat the call with: ")[2])
    again = CliRunner().invoke(app, command[1:])
    assert isinstance(again.exception, UserCodeError)
    assert again.exception.place == caught.value.place


def test_finished_episodes_are_not_run_again(tmp_path, data, tools):
    given = settings(data, tools)
    first = evaluate(tmp_path / "out", given)
    lines = (tmp_path / "out/trajectories.jsonl").read_bytes()
    again = Server()
    assert evaluate(tmp_path / "out", given, again) == first
    assert again.requests == []
    assert (tmp_path / "out/trajectories.jsonl").read_bytes() == lines


def test_native_tool_calls_through_an_endpoint_that_reads_them(tmp_path, data, tools):
    server = Server()
    records = evaluate(tmp_path / "out", settings(data, tools, loop="tool_call_agent"), server)
    assert all(record.error is None for record in records.values())
    trajectories = list(trace.read(tmp_path / "out/trajectories.jsonl"))
    assert sum(trajectory.tool_calls for trajectory in trajectories) > 6
    for trajectory in trajectories:
        assert trajectory.score.components["correctness"] == float(trajectory.answer.endswith(trajectory.ground_truth))
        assert all(result.text.isdigit() for result in trajectory.results)
    answered = [message for request in server.requests for message in request["messages"] if message["role"] == "tool"]
    assert {message["tool_call_id"] for message in answered} <= {"call_0", "call_1", "call_2"}
    assert all(request["tools"][0]["function"]["name"] == "calculator" for request in server.requests)


class Flaky(Server):
    """Gives no message for the questions of one data source."""

    def answer(self, content):
        if content and b"What is 17+" in content:
            return {"choices": []}
        return super().answer(content)


def test_an_episode_without_a_score_is_counted_and_tried_again(tmp_path, data, tools):
    given = settings(data, tools, n=2)
    records = evaluate(tmp_path / "out", given, Flaky())
    failed = {key for key, record in records.items() if record.error is not None}
    assert failed == {(1, 0), (1, 1)}
    assert "the answer has no message" in records[1, 0].error
    summary = summarize(records.values(), rows=12, n=2)
    assert (summary["all"]["scored"], summary["all"]["unscored"]) == (22, 2)
    assert summary["all"]["pass"]["1"]["rows"] == 11
    assert all(record.error is None for record in evaluate(tmp_path / "out", given).values())


class Down(Server):
    def answer(self, content):
        return {"choices": []}


def test_an_engine_that_is_gone_ends_the_evaluation(tmp_path, data, tools, monkeypatch):
    monkeypatch.setattr(runner, "MIN_FAILURES", 4)
    given = settings(data, tools, "concurrency=2")
    with pytest.raises(EngineError, match=r"4 episodes in a row have failed, the last with: .*: the answer"):
        evaluate(tmp_path / "out", given, Down())
    assert len(evaluate(tmp_path / "out", given)) == 12


def test_concurrency_limits_the_episodes_at_one_time(tmp_path, data, tools):
    class Counting(Server):
        at_once = most = 0

        async def connection(self, reader, writer):
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await super().connection(reader, writer)

    server = Counting(delay_s=0.01)
    evaluate(tmp_path / "out", settings(data, tools, "concurrency=3"), server)
    assert server.most == 3


def test_a_limit_of_rows_and_the_seed(tmp_path, data, tools):
    server = Server()
    evaluate(tmp_path / "out", settings(data, tools, "limit=2", n=2), server)
    seeds = {request["seed"] for request in server.requests}
    assert len(seeds) == 4
    again = Server()
    evaluate(tmp_path / "again", settings(data, tools, "limit=2", n=2), again)
    assert {request["seed"] for request in again.requests} == seeds
    unseeded = Server()
    evaluate(tmp_path / "unseeded", settings(data, tools, "limit=1", "seed=null"), unseeded)
    assert "seed" not in unseeded.requests[0]


def test_a_row_that_selects_a_tool_that_is_not_there_is_unscored(tmp_path, data, tools):
    from agent_rl.data import read_parquet, write_parquet

    rows = read_parquet(data)
    for number, row in enumerate(rows):
        row["extra_info"]["tool_selection"] = ["calculator" if number else "python"]
    write_parquet(rows, tmp_path / "selected.parquet")
    records = evaluate(tmp_path / "out", settings(str(tmp_path / "selected.parquet"), tools))
    assert "tool_selection has ['python']" in records[0, 0].error
    assert all(records[row, 0].error is None for row in range(1, 12))


@pytest.fixture
def broken_tool(tmp_path):
    """Writes a tool file with a calculator whose call is this statement, in line 7 of buggy.py."""

    def write(statement):
        (tmp_path / "buggy.py").write_text(
            "from agent_rl.tools import Tool\nfrom agent_rl.errors import FatalError\n"
            "class Buggy(Tool):\n    name, description = 'calculator', 'd'\n"
            "    parameters = {'type': 'object', 'properties': {}}\n"
            f"    async def call(self, arguments):\n        {statement}\n"
        )
        (tmp_path / "tools.yaml").write_text("tools: [{class_name: 'buggy.py:Buggy'}]")
        return str(tmp_path / "tools.yaml")

    return write


def test_fatal_error_ends_the_evaluation(tmp_path, data, broken_tool):
    with pytest.raises(FatalError, match="the code is wrong"):
        evaluate(tmp_path / "out", settings(data, broken_tool("raise FatalError('the code is wrong')")))


def test_the_same_bug_of_a_tool_ends_the_evaluation_at_the_eighth_time(tmp_path, data, broken_tool):
    tools, said = broken_tool("return str(arguments['no such key'])"), rf"{tmp_path}/buggy\.py:7: KeyError"
    with pytest.raises(FatalError, match=rf"{said}: 'no such key'\. This bug occurred 8 times"):
        evaluate(tmp_path / "out", settings(data, tools, "concurrency=1"))
    kept = list(trace.read(tmp_path / "out/trajectories.jsonl"))
    assert sum("buggy.py:7" in str(trajectory.error) for trajectory in kept) == 8
    assert not any(trajectory.score for trajectory in kept if trajectory.error)


def test_the_same_crash_of_a_program_ends_the_evaluation_at_the_eighth_time(tmp_path, data):
    """Its episodes have the score 0."""
    (tmp_path / "crash.py").write_text(
        "import os, openai\n"
        "messages = [{'role': 'user', 'content': '?'}]\n"
        "openai.OpenAI().chat.completions.create(model='m', messages=messages).wrong\n"
    )
    command = f"agent_rl.gateway.command='{sys.executable} {tmp_path}/crash.py'"
    given = settings(data, None, command, "concurrency=2", loop="gateway_agent")
    with pytest.raises(FatalError, match=rf"AttributeError at {tmp_path}/crash\.py:3\)\. This bug occurred 8 times"):
        evaluate(tmp_path / "out", given)
    kept = list(trace.read(tmp_path / "out/trajectories.jsonl"))
    assert {each.score.total for each in kept} == {0.0}
    assert all("gateway" in each.info and "code 1" in each.info["program"] for each in kept)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["agent_rl.tools.max_result_tokens=64"], "agent_rl.tools.max_result_tokens: a chat endpoint counts"),
        (["agent_rl.reward.overlong.penalty=1", "agent_rl.reward.overlong.buffer_tokens=9999"], "agent_rl.reward.over"),
    ],
)
def test_what_cannot_work_is_refused_before_it_starts(tmp_path, data, tools, words, said):
    with pytest.raises(ConfigError, match=said):
        evaluate(tmp_path / "out", settings(data, tools, *words))


PROGRAM = """
import json, os, urllib.request

row = json.load(open(os.environ["AGENT_RL_ROW_FILE"]))
headers = {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
body = json.dumps({"model": "policy", "messages": row["prompt"], "tools": [
    {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}]}).encode()
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
assert json.load(urllib.request.urlopen(request))["choices"][0]["message"]
"""


def test_a_program_that_gateway_agent_runs_is_evaluated_at_an_endpoint(tmp_path, data, tools):
    (tmp_path / "agent.py").write_text(PROGRAM)
    words = f"agent_rl.gateway.command={sys.executable} {tmp_path}/agent.py", "sampling.temperature=0"
    server = Server()
    evaluate(tmp_path / "out", settings(data, tools, *words, loop="gateway_agent", limit=2), server)
    trajectories = list(trace.read(tmp_path / "out/trajectories.jsonl"))
    assert [(each.agent, len(each.turns), each.error) for each in trajectories] == [("gateway_agent", 1, None)] * 2
    assert [body["tools"][0]["function"]["name"] for body in server.requests] == ["other"] * 2
