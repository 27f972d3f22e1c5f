"""The recipes of verl's guides that no other test runs: PPO under a reward model, and programs on a remote sandbox."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from agent_rl.data import code, preferences
from agent_rl.trajectory import trace
from tests.e2e.taught import teach
from tests.e2e.training import diffs, train_recipe
from tests.sandbox.test_fusion import run_code
from tests.support.http_faults import FaultyServer

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.timeout(900)]

SUM = {"question": "Print the sum.", "input_output": json.dumps({"inputs": ["1 2", "4 5"], "outputs": ["3", "9"]})}
PROGRAMS = ("print(sum(map(int, input().split())))", "print(max(map(int, input().split())))")
"""A right one and a wrong one."""
HH = {
    "prompt": "\n\nHuman: Why is the sky blue?\n\nAssistant:",
    "chosen": " Air scatters blue light most.",
    "rejected": " No.",
}


def trained_by_ppo(logged: dict[int, dict[str, Any]]) -> None:
    """Both steps had a critic that learned, and an engine that agreed with the trainer."""
    assert list(logged) == [1, 2]
    assert max(diffs(logged)) < 1e-5
    for metrics in logged.values():
        assert metrics["critic/vf_loss"] > 0
        assert metrics["agent/unscored"] == 0


@pytest.mark.usefixtures("run_processes")
def test_hh_rlhf(tmp_path: Path, tiny_model: Path) -> None:
    classifier = tmp_path / "classifier"
    make_classifier(classifier, make_tokenizer(CORPUS, classifier, 512), hidden=48, layers=2, max_positions=4096)
    rows = {
        split: [
            preferences.to_row(HH, split, i, data_source="Dahoas/full-hh-rlhf", agent_name="single_turn_agent")
            for i in range(count)
        ]
        for split, count in (("train", 8), ("test", 4))
    }
    logged = train_recipe(
        "hh_rlhf",
        tmp_path,
        rows,
        f"actor_rollout_ref.model.path={tiny_model}",
        f"agent_rl.reward.models.preference.path={classifier}",
    )
    trained_by_ppo(logged)
    assert logged[2]["actor/reward_kl_penalty"] != 0
    for metrics in logged.values():
        parts = {"efficiency": 1.0, "format": 0.2, "quality": 1.0}
        total = sum(weight * metrics[f"agent/{name}"] for name, weight in parts.items() if f"agent/{name}" in metrics)
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
    seen = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(seen) == 2 * 4 + 4
    assert len({trajectory.score.components["quality"] for trajectory in seen if trajectory.score}) > 1


@pytest.mark.usefixtures("run_processes")
def test_code_fusion(tmp_path: Path) -> None:
    model = tmp_path / "model"
    rows = {
        split: [code.to_row(SUM, split, i, agent_name="single_turn_agent") for i in range(count)]
        for split, count in (("train", 8), ("test", 4))
    }
    (asked,) = rows["test"][0]["prompt"]
    taught = [[asked, {"role": "assistant", "content": f"```python\n{each}\n```"}] for each in PROGRAMS]
    assert teach(model, taught) < 0.2
    with FaultyServer(default=run_code) as server:
        address = f"reward.sandbox_fusion.url={server.url}/run_code"
        logged = train_recipe("code_fusion", tmp_path, rows, f"actor_rollout_ref.model.path={model}", address)
        assert len(server.requests) > 8
    trained_by_ppo(logged)
    seen = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(seen) == 2 * 4 + 4
    right = [PROGRAMS[0] in trajectory.turns[0].text for trajectory in seen]
    assert [each.score.components["correctness"] == 1 for each in seen if each.score] == right
    assert any(right)
    assert not all(right)
