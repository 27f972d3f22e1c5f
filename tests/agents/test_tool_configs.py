"""Every shipped tool file works under our loop and under verl's own `tool_agent`: the policy reads the same text."""

import asyncio
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from agent_rl.tools import load_tools
from tests.agents.server import Server, make_loop
from tests.support.http_faults import FaultyServer, answer
from tests.tools.builtin.test_mcp import http_server

pytestmark = pytest.mark.trainer

CONFIGS = Path(__file__).parents[2] / "tool_configs"
FUSION = {"status": "Success", "run_result": {"status": "Finished", "return_code": 0, "stdout": "42\n", "stderr": ""}}

CALLS = [  # file, tool, arguments, what the policy reads
    ("calculator.yaml", "calculator", {"expression": "6*7"}, "42"),
    ("python.yaml", "python", {"code": "x = 6\nx * 7"}, "42"),
    ("sympy.yaml", "sympy", {"expression": "diff(x^2, x)"}, "2*x"),
    ("sql.yaml", "sql", {"query": "SELECT name FROM item"}, "teapot"),
    ("search.yaml", "search", {"query": "capital of France"}, "Paris is the capital"),
    ("search_remote.yaml", "search", {"query": "capital"}, "Berlin is far"),
    ("sandbox_fusion.yaml", "sandbox_fusion", {"code": "print(42)"}, "42"),
    ("check_answer.yaml", "check_answer", {"answer": "42"}, "'42' is correct."),
    ("submit_answer.yaml", "submit_answer", {"answer": "42"}, "The answer was submitted."),
    ("mcp.yaml", "add", {"by": 42}, "42"),
]
KWARGS = {
    "sql": {"create_kwargs": {"database": "shop.sqlite"}},
    "check_answer": {"create_kwargs": {"ground_truth": "42"}},
}


@pytest.fixture(scope="module")
def services(tmp_path_factory):
    """The variables that the files name."""
    folder = tmp_path_factory.mktemp("services")
    with sqlite3.connect(folder / "shop.sqlite") as connection:
        connection.execute("CREATE TABLE item (name TEXT)")
        connection.execute("INSERT INTO item VALUES ('teapot')")
    connection.close()
    corpus = [
        {"id": "1", "contents": "Paris\nParis is the capital of France"},
        {"id": "2", "contents": "Tea\nTea is hot"},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in corpus))
    retrieved = {"result": [[{"document": {"id": "1", "contents": "Berlin\nBerlin is far"}, "score": 1.0}]]}
    with (
        http_server() as mcp_url,
        FaultyServer(default=answer(body=json.dumps(retrieved).encode())) as retriever,
        FaultyServer(default=answer(body=json.dumps(FUSION).encode())) as fusion,
    ):
        yield {
            "MCP_SERVER_URL": mcp_url,
            "SEARCH_URL": f"{retriever.url}/retrieve",
            "SANDBOX_FUSION_URL": fusion.url,
            "SEARCH_CORPUS": str(folder / "corpus.jsonl"),
            "SQL_DATABASES": str(folder),
        }


@pytest.fixture
def episode(compose, tokenizer, services, monkeypatch):
    """`episode(agent, file, *turns)`: what the policy has read by its last turn."""
    for name, value in services.items():
        monkeypatch.setenv(name, value)

    def episode(agent, file, *turns):
        keys = "actor_rollout_ref.rollout.multi_turn"
        config = compose(
            f"{keys}.format=hermes",
            f"{keys}.tool_config_path={CONFIGS / file}",
            f"{keys}.max_tool_response_length=2000",
            "data.max_prompt_length=16384",
            "data.max_response_length=4096",
        )
        server = Server(tokenizer, *turns)

        async def inside():
            loop = make_loop(config, server, tokenizer, agent)
            prompt = np.array([{"role": "user", "content": "?"}], dtype=object)
            await loop.run({"logprobs": True}, raw_prompt=prompt, tools_kwargs=KWARGS, extra_info={})

        asyncio.run(inside())
        return tokenizer.decode(server.requests[-1]["ids"]), len(server.requests)

    return episode


@pytest.mark.parametrize(("file", "tool", "arguments", "expected"), CALLS, ids=[f"{c[0]}-{c[1]}" for c in CALLS])
def test_it_is_read_under_verls_loop_and_under_ours(episode, file, tool, arguments, expected):
    call = json.dumps({"name": tool, "arguments": arguments})
    read, requests = episode("tool_agent", file, f"<tool_call>\n{call}\n</tool_call>", "Done.")
    assert requests == 2
    assert expected in read.split("<tool_response>")[1]
    turn = f"Action: {tool}\nAction Input: {json.dumps(arguments)}"
    read, requests = episode("react_agent", file, turn, "Final Answer: done")
    assert requests == 1 if tool == "submit_answer" else expected in read.split("Observation:")[-1]


def test_no_shipped_file_is_missing_here(monkeypatch):
    assert {call[0] for call in CALLS} | {"http.yaml", "run_tests.yaml"} == {
        path.name for path in CONFIGS.glob("*.yaml")
    }
    assert [spec.name for spec in load_tools(CONFIGS / "http.yaml")] == ["get_weather"]
