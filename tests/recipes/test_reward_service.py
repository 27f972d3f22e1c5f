"""The service of the recipe reward_api starts from its file, and answers as the recipe's README shows."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx

from agent_rl.launch.composition import compose
from agent_rl.rewards.service.app import create_app
from agent_rl.rewards.service.settings import read_settings

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/reward_api"


def ask(body: Any) -> Any:
    app: Any = create_app(read_settings(RECIPE / "service.yaml"))

    async def post() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
            return await client.post("/get_reward", json=body)

    return asyncio.run(post()).json()


def test_the_readmes_request_is_answered_as_it_says() -> None:
    shown = re.search(r"-d '(.*)'\n(.*)\n", (RECIPE / "README.md").read_text())
    assert shown
    assert ask(json.loads(shown[1])) == json.loads(shown[2])


def test_what_the_trainer_asks_for_is_what_the_service_has() -> None:
    """Addresses of endpoints, and the names of the numbers that are logged."""
    reward = compose(RECIPE).agent_rl.reward
    settings = read_settings(RECIPE / "service.yaml")
    assert settings.judge is not None
    assert [reward.reward_api, reward.components.judged.config.url] == [
        f"http://{settings.host}:{settings.port}/{endpoint}" for endpoint in ("get_reward", "get_reward2")
    ]
    (name,) = settings.judge.components
    assert list(reward.components.judged.config.logs) == [name, f"{name}_tokens"]
