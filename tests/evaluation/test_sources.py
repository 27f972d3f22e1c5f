import asyncio

import pytest

from agent_rl.errors import ConfigError
from agent_rl.evaluation.settings import read_settings
from agent_rl.evaluation.sources import open_source
from tests.openai_server import MODEL, Server


def test_no_address(tmp_path):
    async def ask(**flags):
        async with open_source(read_settings({"data": "x", "model": "m", **flags}, []), tmp_path):
            pass

    with pytest.raises(ConfigError, match="endpoint: no address is given"):
        asyncio.run(ask())


def test_a_source_is_open_and_checked(tmp_path):
    async def ask(model):
        async with Server() as server:
            given = read_settings({"data": "x", "model": model, "endpoint": server.url}, ["sampling.temperature=0"])
            async with open_source(given, tmp_path) as source:
                return source.sampling.temperature

    assert asyncio.run(ask(MODEL)) == 0
    with pytest.raises(ConfigError, match="has no model"):
        asyncio.run(ask("other"))
