"""The recipe llm_judge: an untrained model on the real engine, held to the verdict's JSON schema, is the judge.

A second component has it compare the two samples of each prompt.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_rl.evaluation.sources import serve
from agent_rl.trajectory import trace
from tests.e2e.training import sums, train_recipe

ROOT = Path(__file__).parents[2]
PROMPTS, SAMPLES = 4, 2
CRITERIA = {"reasoning": 2, "tools": 1, "clarity": 1}

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.timeout(900)]


@pytest.mark.usefixtures("run_processes")
def test_a_judge_on_the_engine_scores_two_steps(tmp_path: Path, tiny_model: Path) -> None:
    logged = asyncio.run(run(tmp_path, tiny_model))

    assert sorted(logged) == [1, 2]
    for metrics in logged.values():
        assert metrics["agent/unscored"] == 0
        assert metrics["agent/judge_open"] == 1
        assert metrics["agent/judge_votes"] == 3
        assert metrics["agent/judge_tokens"] > 0
        assert 0 < metrics["agent/judge_disagreement"] <= 1
        criteria = {name: metrics[f"agent/judge_criterion_{name}"] for name in CRITERIA}
        weighted = sum(CRITERIA[name] * value for name, value in criteria.items()) / sum(CRITERIA.values())
        assert metrics["agent/judge"] == pytest.approx(weighted, abs=1e-5)
        assert metrics["agent/better"] == pytest.approx(0.5)  # what one of two wins the other loses
        assert metrics["agent/better_pairs"] == 1
        weights = {"correctness": 1, "efficiency": 1, "format": 0.2, "judge": 0.3, "better": 0.1}
        total = sum(weight * metrics[f"agent/{name}"] for name, weight in weights.items())
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
        assert metrics["critic/score/max"] > metrics["critic/score/min"]
        assert metrics["actor/grad_norm"] > 0
        assert metrics["training/rollout_probs_diff_mean"] < 1e-5
    trajectories = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(trajectories) == 2 * PROMPTS * SAMPLES
    for trajectory in trajectories:
        verdicts = trajectory.info["reward"]["notes"]["judge"]["verdicts"]
        assert [sorted(verdict["scores"]) for verdict in verdicts] == [sorted(CRITERIA)] * 3
        assert len(trajectory.info["reward"]["notes"]["better"]["pairs"]) == 1


async def run(folder: Path, model: Path) -> dict[int, dict[str, Any]]:
    """Train beside the judge; each step's metrics."""
    async with serve(model, "judge", folder / "judge.log") as judge:
        return await asyncio.to_thread(train, folder, model, judge)


def train(folder: Path, model: Path, judge: str) -> dict[int, dict[str, Any]]:
    judged, compared = "agent_rl.reward.components.judge", "+agent_rl.reward.components.better"
    (folder / "pair.md").write_text("Which is better?\n{transcript_a}\n{transcript_b}")
    short = {"temperature": 1.0, "max_reason": 20, "verdict_attempts": 20}  # an untrained one often fails
    overrides = {
        "actor_rollout_ref.model.path": model,
        "actor_rollout_ref.actor.optim.lr": 0.01,
        "trainer.test_freq": -1,
        f"{judged}.gate": "'correctness < 1'",  # an untrained model is never right
        f"{judged}.config.url": judge,
        f"+{judged}.config.votes": 3,
        **{f"+{judged}.config.{key}": value for key, value in short.items()},
        f"{compared}.kind": "pairwise_judge",
        f"{compared}.weight": 0.1,
        f"{compared}.config.url": judge,
        f"{compared}.config.model": "judge",
        f"{compared}.config.template": folder / "pair.md",
        **{f"{compared}.config.{key}": value for key, value in short.items()},
    }
    given = [f"{key}={value}" for key, value in overrides.items()]
    return train_recipe("llm_judge", folder, sums(2 * PROMPTS), *given)
