"""The sandbox_fusion tool against a server that speaks the protocol and really runs the code."""

import json

import pytest

from agent_rl.remote import RemoteError
from agent_rl.trajectory import ToolStatus
from tests.support.fusion_server import SANDBOX_ERROR, run_code
from tests.support.http_faults import FaultyServer, answer, drop
from tests.tools import use

pytestmark = pytest.mark.usefixtures("quick_delays")


@pytest.fixture
def load(tmp_path):
    return lambda **config: use.load(tmp_path, "sandbox_fusion", config)[0]


def run(spec, *codes):
    return use.run([spec], [("sandbox_fusion", {"code": code}) for code in codes])


@pytest.mark.parametrize("path", ["", "/run_code"])
def test_code_runs(load, path, monkeypatch):
    monkeypatch.setenv("FUSION_TEST_KEY", "sk-fusion")
    with FaultyServer(default=run_code) as server:
        spec = load(url=server.url + path, memory_limit_mb=512, timeout_s=9, api_key_env="FUSION_TEST_KEY")
        (result,) = run(spec, "print('ü', 2**10)")
    assert (result.status, result.text, result.metrics) == (ToolStatus.OK, "ü 1024", {"execution_s": 0.1})
    (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/run_code", "Bearer sk-fusion")
    assert json.loads(request.body) == {
        "code": "print('ü', 2**10)",
        "language": "python",
        "run_timeout": 9.0,
        "compile_timeout": 10.0,
        "memory_limit_MB": 512,
    }


def test_what_the_policy_reads(load):
    with FaultyServer(default=run_code) as server:
        spec = load(url=server.url, max_output_chars=200)
        results = run(
            spec,
            "x = 1",
            "import sys; print('out'); print('warned', file=sys.stderr)",
            "print('before'); 1/0",
            "raise SystemExit(3)",
            "print('a' * 1000)",
            "print('start'); raise ValueError('b' * 1000 + 'end')",
            "def f(:",
            "print('\\x00\\udcff'.encode('utf-8', 'replace'))",
        )
    texts = [result.text for result in results]
    assert [result.status for result in results[:3]] == [ToolStatus.OK, ToolStatus.OK, ToolStatus.ERROR]
    assert texts[0] == "(no output; use print to see a value)"
    assert texts[1] == "out\nwarned"
    assert texts[2].startswith("Error: the code ended with exit status 1\nbefore\nTraceback")
    assert texts[2].endswith("ZeroDivisionError: division by zero")
    assert texts[3] == "Error: the code ended with exit status 3"
    assert texts[4] == "a" * 100 + "...(800 characters cut)..." + "a" * 100
    assert "\nstart\n...(" in texts[5]
    assert texts[5].endswith("bend")
    assert "SyntaxError" in texts[6]
    assert results[7].status is ToolStatus.OK


def test_code_that_takes_too_long(load):
    with FaultyServer(default=run_code) as server:
        spec = load(url=server.url, timeout_s=1.0)
        (result,) = run(spec, "import time; print('early', flush=True); time.sleep(60)")
    assert result.status is ToolStatus.TIMEOUT
    assert result.text == "Error: the code did not finish in time\nearly"


def test_code_that_does_not_compile_or_is_killed(load):
    compiled = {"status": "Finished", "return_code": 1, "stderr": "main.cpp:1: error"}
    killed = {"status": "Finished", "return_code": 137, "stdout": "", "stderr": ""}
    steps = [
        answer(200, {"status": "Failed", "message": "", "compile_result": compiled, "run_result": None}),
        answer(200, {"status": "Failed", "message": "", "run_result": killed}),
    ]
    with FaultyServer(*steps) as server:
        spec = load(url=server.url, language="cpp")
        first, second = run(spec, "int main")[0], run(spec, "x")[0]
    assert first.text == "Error: the code ended with exit status 1\nmain.cpp:1: error"
    assert second.text == "Error: the code ended with exit status 137 (killed, perhaps for using too much memory)"


@pytest.mark.parametrize("code", ["x" * 100_001, "print('\ud800')"])
def test_code_that_is_not_sent(load, code):
    with FaultyServer(default=run_code) as server:
        (result,) = run(load(url=server.url), code)
    assert (result.status, server.requests) == (ToolStatus.ERROR, [])


@pytest.mark.parametrize("fault", [answer(500), drop, SANDBOX_ERROR])
def test_a_fault_that_passes_is_not_noticed(load, fault):
    with FaultyServer(fault, default=run_code) as server:
        (result,) = run(load(url=server.url), "print(1)")
    assert (result.text, len(server.requests)) == ("1", 2)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (answer(500), "status 500"),
        (answer(200, {"run_result": {}}), "not a Sandbox Fusion response: status: Field required"),
        (answer(200, {"status": "Success", "run_result": {"status": "Finished", "stdout": 5}}), "run_result.stdout"),
        (SANDBOX_ERROR, r"reports an internal error \(attempt 3\)"),
    ],
)
def test_a_server_that_fails_leaves_the_trajectory_unscored(load, fault, problem):
    with FaultyServer(default=fault) as server:
        spec = load(url=server.url, attempts=2)
        with pytest.raises(RemoteError, match=problem) as caught:
            run(spec, "print(1)")
    assert caught.value.host == f"127.0.0.1:{server.server_port}"
