"""The recipe reward_api: its service asks a judge on the real engine, and is killed and started again in each step."""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from omegaconf import OmegaConf

from agent_rl.evaluation.sources import serve
from agent_rl.trajectory import trace
from tests.e2e.training import sums, train_recipe
from tests.rewards.service.process import Service

ROOT = Path(__file__).parents[2]
PROMPTS, EPISODES = 4, 2
"""In each step; an episode that is trained on and a greedy one."""
SHORT = {"response_format": None, "regex": r'\{"reason": "[a-z ]{1,40}", "score": [0-9]\}'}
"""What SGLang is asked for instead of the JSON schema, which an untrained judge fills with whatever it allows."""

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.timeout(900)]


@pytest.mark.usefixtures("run_processes")
def test_a_run_survives_its_service(tmp_path: Path, tiny_model: Path) -> None:
    logged, killed = asyncio.run(run(tmp_path, tiny_model))

    assert len(killed) == 2
    assert all(open_requests > 0 for open_requests in killed)
    assert sorted(logged) == [1, 2]
    for metrics in logged.values():
        assert metrics["agent/unscored"] == 0
        assert metrics["agent/without_baseline"] == 0
        assert metrics["agent/judged_open"] == 1
        assert 0 <= metrics["agent/judged"] <= 1
        assert metrics["agent/judged_explained"] == pytest.approx(metrics["agent/judged"])
        assert metrics["agent/judged_explained_tokens"] > 0
        parts = {name: metrics[f"agent/{name}"] for name in ("correctness", "efficiency", "format", "overlong")}
        total = parts["correctness"] + 0.3 * metrics["agent/judged"] + parts["efficiency"] + 0.2 * parts["format"]
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
        assert metrics["training/rollout_probs_diff_mean"] < 1e-5
    trajectories = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(trajectories) == 2 * PROMPTS * EPISODES  # none is lost, none is there twice
    assert len({trajectory.id for trajectory in trajectories}) == len(trajectories)
    assert all(trajectory.score and trajectory.error is None for trajectory in trajectories)
    assert all(trajectory.info["reward"]["notes"]["judged"]["explained"] for trajectory in trajectories)


async def run(folder: Path, model: Path) -> tuple[dict[int, dict[str, Any]], list[float]]:
    """Train beside judge and service; each step's metrics, and the open requests when the service was killed."""
    async with serve(model, "judge", folder / "judge.log") as judge:
        config = OmegaConf.load(ROOT / "recipes/reward_api/service.yaml")
        config.judge.components.explained.config.body = SHORT
        OmegaConf.save(config, folder / "service.yaml")
        (folder / "rules.py").write_text((ROOT / "recipes/reward_api/rules.py").read_text())
        with Service(folder / "service.yaml", env={"JUDGE_URL": judge}) as service:
            logged: dict[int, dict[str, Any]] = {}
            killed: list[float] = []
            training = asyncio.create_task(asyncio.to_thread(train, folder, model, service.url, logged))
            killing = threading.Thread(target=kill_in_each_step, args=(service, logged, killed, training.done))
            killing.start()
            try:
                await training
            finally:
                await asyncio.to_thread(killing.join)
            return logged, killed


def train(folder: Path, model: Path, service: str, logged: dict[int, dict[str, Any]]) -> None:
    overrides = {
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.actor.optim.lr": 0.01,
        "trainer.test_freq": -1,
        "agent_rl.reward.reward_api": f"{service}/get_reward",
        "agent_rl.reward.components.judged.config.url": f"{service}/get_reward2",
        "agent_rl.reward.components.judged.gate": "'correctness < 1'",  # an untrained model is never right
    }
    train_recipe(
        "reward_api", folder, sums(2 * PROMPTS), *(f"{key}={value}" for key, value in overrides.items()), logged=logged
    )


def kill_in_each_step(
    service: Service, logged: dict[int, dict[str, Any]], killed: list[float], over: Callable[[], bool]
) -> None:
    """Kill the service while it asks its judge, and start it again two seconds later."""
    while len(killed) < 2 and not over():
        counts = httpx.get(f"{service.url}/metrics", timeout=60).text
        found = re.search(r'requests_in_flight\{endpoint="/get_reward2"\} ([\d.]+)', counts)
        if len(logged) == len(killed) and found and float(found[1]) > 0:
            service.kill()
            killed.append(float(found[1]))
            time.sleep(2)
            service.start()
        time.sleep(0.01)
