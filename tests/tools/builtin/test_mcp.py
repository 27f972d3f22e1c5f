"""The tools of real MCP servers, over stdio and HTTP: what the policy gets, and what is left when something breaks."""

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import cloudpickle
import psutil
import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.tools import ToolSession, load_tools
from agent_rl.tools.builtin import mcp
from agent_rl.tools.builtin.mcp import IdempotentMcpTool, McpTool
from agent_rl.tools.inspection import expand
from agent_rl.trajectory import ToolCall, ToolStatus
from tests.support.processes import alive, until, wait_until
from tests.tools import use

pytestmark = pytest.mark.slow

SERVER = Path(__file__).with_name("mcp_server.py")
TOKEN = "Bearer s3cr3t-t0ken"
PATIENCE_S = 60


def stdio(*mode, **config):
    return {"command": [sys.executable, str(SERVER), *mode], "connect_timeout_s": PATIENCE_S, **config}


def load(folder, config, **entry):
    return use.load(folder, "mcp", config, **entry)


def session(specs, timeout_s=PATIENCE_S):
    return ToolSession(specs, default_timeout_s=timeout_s)


async def ask(tools, name, /, **arguments):
    (result,) = await tools.run([ToolCall(name, arguments)])
    return result


async def say(tools, name, /, **arguments):
    result = await ask(tools, name, **arguments)
    assert result.status is ToolStatus.OK, result.text
    return result.text


def ends(pid):
    wait_until(lambda: not alive(pid), PATIENCE_S)


@contextlib.contextmanager
def http_server(port=0, mode="http", **env):
    command = [sys.executable, str(SERVER), mode, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
    try:
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module", autouse=True)
def no_process_is_left():
    yield
    left = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # a zombie has no command line
            left.append(child.cmdline())
    assert not [command for command in left if str(SERVER) in command]


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    return load(tmp_path_factory.mktemp("mcp"), stdio())


@pytest.fixture(scope="module")
def server():
    with http_server(MCP_TEST_TOKEN=TOKEN) as url:
        yield url


@pytest.fixture
def remote(server, monkeypatch):
    monkeypatch.setenv("MCP_TEST_TOKEN", TOKEN)
    return {"url": server, "headers_from": {"Authorization": "MCP_TEST_TOKEN"}, "connect_timeout_s": PATIENCE_S}


async def test_include_exclude_and_prefix(tmp_path, remote):
    found = load(tmp_path, {**remote, "include": ["read*", "add"], "exclude": ["*env"], "prefix": "my_"}, timeout_s=7)
    assert [(spec.name, spec.timeout_s) for spec in found] == [("my_add", 7), ("my_read_pid", 7)]
    assert "include" not in found[0].config
    async with session(found) as tools:
        assert await say(tools, "my_add", by=2) == "2"
    with pytest.raises(ConfigError, match=r"include: 'serch' matches none of the server's tools\..*Known: add, ask,"):
        load(tmp_path, {**remote, "include": ["serch"]})
    with pytest.raises(ConfigError, match="no tool is left"):
        load(tmp_path, {**remote, "include": ["add"], "exclude": ["a*"]})


def test_only_what_the_server_annotates_may_be_repeated_and_what_the_entry_declares_reused(tmp_path, specs, remote):
    repeatable = {spec.name for spec in specs if spec.cls is IdempotentMcpTool}
    assert repeatable == {"read_env", "read_pid", "crash_once"}
    assert {spec.retries for spec in specs if spec.cls is McpTool} == {0}
    assert not any(spec.may_be_reused for spec in specs), "the hints do not say that nothing else changes what is read"
    with pytest.raises(ConfigError, match=r"cache: IdempotentMcpTool is not reusable .*reusable: true"):
        load(tmp_path, {**remote, "include": ["read_env"]}, cache="trajectory")
    (spec,) = load(tmp_path, {**remote, "include": ["read_env"]}, reusable=True, cache="trajectory")
    assert (spec.cache, spec.may_be_reused) == ("trajectory", True)


async def test_what_the_policy_reads(specs, monkeypatch):
    async with session(specs) as tools:
        text = "a text\n[image/png, 5 bytes]\n[resource file:///doc.txt]\na note\n[application/zip, 6 bytes]"
        assert await say(tools, "show", kind="all") == text
        assert await say(tools, "show", kind="structured") == '{"sum": 3, "unit": "€"}'
        failed = await ask(tools, "fail", why="no")
        assert (failed.status, failed.text) == (ToolStatus.ERROR, "Error: Error executing tool fail: cannot: no")
        assert (await ask(tools, "refuse")).text == "Error: out of order"
        assert (await ask(tools, "add", by="x")).status is ToolStatus.INVALID_ARGUMENTS
        assert await say(tools, "ask") == "declined: List roots not supported"
        assert "characters cut" in await say(tools, "repeat", times=200_000)
        monkeypatch.setattr(mcp, "MAX_MESSAGE_BYTES", 1000)
        large = await ask(tools, "repeat", times=1001)
        assert (large.status, large.text) == (ToolStatus.ERROR, "Error: the result is larger than 8 MiB")
        refused = await ask(tools, "read_env", name="\ud800")
        assert (refused.status, "lone surrogate" in refused.text) == (ToolStatus.ERROR, True)
        assert await say(tools, "add", by=1) == "1"


async def test_a_server_without_sessions(tmp_path):
    with http_server(mode="stateless") as url:
        async with session(load(tmp_path, {"url": url})) as tools:
            assert await say(tools, "add", by=1) == "1"
            assert (await ask(tools, "fail", why="no")).text == "Error: Error executing tool fail: cannot: no"


async def test_the_servers_environment_is_what_the_entry_says_and_its_end_that_of_the_trajectory(tmp_path, monkeypatch):
    monkeypatch.setenv("MCP_TEST_KEY", "k3y-k3y-k3y")
    monkeypatch.setenv("MCP_TEST_OTHER", "private")
    config = stdio(env={"MODE": "train"}, env_from=["MCP_TEST_KEY"], cwd=str(tmp_path), include=["read_env", "crash"])
    found = load(tmp_path, config)
    assert "k3y-k3y-k3y" not in repr(found)
    async with session(found) as tools:
        names = ["MODE", "MCP_TEST_KEY", "MCP_TEST_OTHER", "PATH"]
        values = [await say(tools, "read_env", name=name) for name in names]
        assert values == ["train", "***", "unset", os.environ["PATH"]]
        with pytest.raises(UnscoredError) as caught:
            await ask(tools, "crash")
        assert "its stderr ends with:\nthe disk is on fire ***" in str(caught.value)
        with pytest.raises(UnscoredError, match="the connection was lost"):  # and with it the trajectory's state
            await ask(tools, "read_env", name="PATH")
    monkeypatch.delenv("MCP_TEST_KEY")
    with pytest.raises(ConfigError, match="env_from: the environment variable MCP_TEST_KEY is not set"):
        load(tmp_path, config)


async def test_a_call_that_hangs_is_cancelled_and_the_session_goes_on(specs):
    specs = [replace(spec, timeout_s=0.5 if spec.name == "hang" else None) for spec in specs]
    async with session(specs) as tools:
        before = int(await say(tools, "count_stopped"))
        assert await say(tools, "add", by=1) == "1"
        assert (await ask(tools, "hang")).status is ToolStatus.TIMEOUT
        deadline = time.monotonic() + PATIENCE_S
        while int(await say(tools, "count_stopped")) == before and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert int(await say(tools, "count_stopped")) == before + 1
        assert await say(tools, "add", by=1) == "2"


async def test_twenty_trajectories_at_once_over_http(tmp_path, remote):
    found = load(tmp_path, remote)

    async def trajectory(number):
        async with session(found) as tools:
            for turn in range(1, 4):
                calls = [ToolCall("add", {"by": number}), ToolCall("fail", {"why": "x"})]
                added, failed = await tools.run(calls)
                assert (added.text, failed.status) == (str(turn * number), ToolStatus.ERROR)

    await asyncio.gather(*(trajectory(number) for number in range(20)))
    async with session(load(tmp_path, remote)) as tools:  # the file may be loaded while a loop runs
        assert (await ask(tools, "fail", why="no")).text == "Error: Error executing tool fail: cannot: no"
        large = await ask(tools, "repeat", times=9_000_000)
        assert (large.status, large.text) == (ToolStatus.ERROR, "Error: the result is larger than 8 MiB")
        assert await say(tools, "add", by=1) == "1"


def test_a_shared_session_is_one_for_all_and_is_opened_again(tmp_path, specs):
    found = [replace(spec, config={**spec.config, "session": "shared"}) for spec in specs]

    async def main():
        async with session(found) as one, session(found) as two:
            texts = await asyncio.gather(*(say(tools, "add", by=1) for tools in (one, two) for _ in range(3)))
            assert sorted(texts) == ["1", "2", "3", "4", "5", "6"]
            with pytest.raises(UnscoredError, match="the disk is on fire"):
                await ask(one, "crash")
            assert await say(two, "add", by=1) == "1"
            assert await say(two, "crash_once", flag=str(tmp_path / "flag")) == "back again", "it may be repeated"
            return int(await say(two, "read_pid"))

    ends(asyncio.run(main()))  # with the event loop


def test_a_trajectory_has_a_process_of_its_own_that_does_not_outlive_it(specs):
    async def main():
        async with session(specs) as one, session(specs) as two:
            await asyncio.gather(say(one, "add", by=1), say(two, "add", by=10))
            assert [await say(one, "add", by=1), await say(two, "add", by=10)] == ["2", "20"]
            first = int(await say(one, "read_pid"))
            assert first != int(await say(two, "read_pid"))
        await until(lambda: not alive(first), PATIENCE_S)
        tools = await session(specs).__aenter__()
        tools.unfinished = asyncio.create_task(ask(tools, "hang"))
        return int(await say(tools, "read_pid"))

    ends(asyncio.run(main()))  # nor does it outlive the event loop


async def test_an_http_server_that_is_started_again(tmp_path):
    with http_server() as url:
        found = load(tmp_path, {"url": url, "session": "shared", "include": ["add", "hang"]})
        tools = await session(found).__aenter__()
        assert await say(tools, "add", by=1) == "1"
        hanging = asyncio.create_task(ask(tools, "hang"))
        await asyncio.sleep(0.3)
    with pytest.raises(UnscoredError, match="the call was not answered"):
        await hanging
    with pytest.raises(UnscoredError, match="connect"):
        await ask(tools, "add", by=1)
    with http_server(int(url.rsplit(":")[-1].removesuffix("/mcp"))):
        assert await say(tools, "add", by=1) == "1"
    with http_server(int(url.rsplit(":")[-1].removesuffix("/mcp"))):
        with pytest.raises(UnscoredError, match=r"HTTP status 404|not answered"):  # a session that nobody knows
            await ask(tools, "add", by=1)
        assert await say(tools, "add", by=1) == "1"
        await tools.__aexit__(None, None, None)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"command": ["no-such-program-anywhere"]}, "No such file or directory: 'no-such-program-anywhere'"),
        ({"command": [sys.executable, str(SERVER), "broken"]}, "its stderr ends with:\nno licence"),
        ({"command": [sys.executable, str(SERVER), "mute"], "connect_timeout_s": 0.5}, "no answer within 0.5 s"),
        ({"url": "http://127.0.0.1:9/mcp"}, "MCP server http://127.0.0.1:9/mcp: .*ConnectError"),
    ],
)
def test_a_server_that_cannot_be_reached_stops_the_start(tmp_path, config, problem):
    with pytest.raises(ConfigError, match=rf"tools.yaml:\d+: tools\[0\] .*config: (.|\n)*{problem}"):
        load(tmp_path, config)


def test_the_key_is_needed_and_never_shown(tmp_path, remote, monkeypatch):
    with pytest.raises(ConfigError, match="HTTP status 404"):
        load(tmp_path, {**remote, "url": remote["url"] + "/nowhere"})
    monkeypatch.setenv("MCP_TEST_TOKEN", "Bearer wr0ng")
    with pytest.raises(ConfigError, match="HTTP status 401") as caught:
        load(tmp_path, remote)
    assert "wr0ng" not in str(caught.value)
    monkeypatch.delenv("MCP_TEST_TOKEN")
    with pytest.raises(ConfigError, match=r"headers_from\.Authorization: the environment variable MCP_TEST_TOKEN"):
        load(tmp_path, remote)


async def test_specs_cross_processes_and_an_expanded_entry_needs_no_server_to_load(tmp_path, specs):
    assert [spec.name for spec in pickle.loads(cloudpickle.dumps(specs))] == [spec.name for spec in specs]

    path = tmp_path / "expanded.yaml"
    path.write_text(expand(specs).replace(sys.executable, "no-such-program-anywhere"))
    absent = load_tools(path)
    assert [(spec.name, spec.parameters, spec.cls) for spec in absent] == [
        (spec.name, spec.parameters, spec.cls) for spec in specs
    ]
    async with session(absent) as tools:
        with pytest.raises(UnscoredError, match="no-such-program-anywhere"):
            await ask(tools, "add", by=1)
    with pytest.raises(ConfigError, match="tool: missing"):
        McpTool.check_config(stdio())


async def test_a_server_that_does_not_want_to_end_is_killed_with_its_children(tmp_path, specs):
    stubborn = [replace(spec, config={**spec.config, **stdio("stubborn")}) for spec in specs]
    async with session(stubborn) as tools:
        process = psutil.Process(int(await say(tools, "read_pid")))
        pids = [process.pid, *(child.pid for child in process.children())]
        task = asyncio.create_task(ask(tools, "hang"))
        await asyncio.sleep(0.2)
        task.cancel()  # as when the episode is cancelled
        await asyncio.wait((task,))
    assert len(pids) == 2
    await until(lambda: not any(map(alive, pids)), PATIENCE_S)


def test_no_process_outlives_a_killed_worker(specs):
    worker = textwrap.dedent(
        """
        import asyncio, pickle, sys
        from agent_rl.tools import ToolSession
        from agent_rl.trajectory import ToolCall

        async def main():
            async with ToolSession(pickle.load(sys.stdin.buffer), default_timeout_s=600) as tools:
                (result,) = await tools.run([ToolCall("read_pid", {})])
                print(result.text, flush=True)
                await tools.run([ToolCall("hang", {})])

        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", worker], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(pickle.dumps(specs))
    process.stdin.close()
    pid = int(process.stdout.readline())
    assert psutil.pid_exists(pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    ends(pid)


def test_the_sdk_is_imported_only_when_it_is_used():
    code = "import sys, agent_rl.tools.builtin.mcp; sys.exit('mcp' in sys.modules or 'httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
