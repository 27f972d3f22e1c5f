"""The server's command line; the server itself is started in tests/e2e."""

import asyncio

import pytest

from agent_rl.errors import ConfigError
from agent_rl.evaluation.sources import cpu_flags, serve


def test_the_flags_of_the_profile():
    flags = cpu_flags()
    assert flags[flags.index("--device") + 1] == "cpu"
    assert "--disable-cuda-graph" in flags
    assert "--enable-memory-saver" not in flags  # it is false
    assert "True" not in flags


@pytest.mark.trainer
def test_a_server_that_does_not_start_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("VERL_PLATFORM", "cpu")

    async def start():
        async with serve(tmp_path / "nothing", "m", tmp_path / "log"):
            pass

    with pytest.raises(ConfigError, match=r"model: SGLang does not start: .*nothing"):
        asyncio.run(start())
