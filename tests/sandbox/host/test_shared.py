"""The sandbox of a worker process: shared, closed with the event loop, and its errors when nothing runs."""

import asyncio
import os

import pytest

from agent_rl.errors import ConfigError, UnscoredError
from agent_rl.sandbox import Execution, ExecutionStatus, shared_sandbox
from agent_rl.sandbox.host.shared import raise_if_not_run
from tests.support.processes import children, wait_until


def test_one_sandbox_is_shared_and_closed_with_the_loop():
    before = set(children(os.getpid()))
    started = []

    async def one(number):
        sandbox = await shared_sandbox(packages=())
        return sandbox, (await sandbox.run(f"print({number})", timeout_s=30)).stdout

    async def main():
        sandboxes, outputs = zip(*await asyncio.gather(*(one(number) for number in range(20))), strict=True)
        assert len(set(sandboxes)) == 1
        assert await shared_sandbox(packages=(), max_concurrency=1) is not sandboxes[0]
        started.extend(set(children(os.getpid())) - before)
        return outputs

    assert asyncio.run(main()) == tuple(f"{number}\n" for number in range(20))
    assert started
    wait_until(lambda: set(children(os.getpid())) <= before, 20)
    assert asyncio.run(one(1))[1] == "1\n"


def test_every_caller_gets_the_error_of_a_missing_package():
    async def main():
        waiting = (shared_sandbox(packages=("no-such-distribution-here",)) for _ in range(2))
        return await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(error, ConfigError) for error in asyncio.run(main()))


def test_refused_is_a_config_error_and_failed_is_unscored():
    with pytest.raises(ConfigError, match=r"config.unsafe: landlock is missing. Set it to true only"):
        raise_if_not_run(Execution(ExecutionStatus.REFUSED, stderr="sandbox: landlock is missing\n"), "config.unsafe")
    with pytest.raises(UnscoredError, match="the sandbox failed: its process died"):
        raise_if_not_run(Execution(ExecutionStatus.UNAVAILABLE, stderr="sandbox: its process died\n"), "")
    raise_if_not_run(Execution(ExecutionStatus.ERROR), "")
