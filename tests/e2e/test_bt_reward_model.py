"""The recipe bt_reward_model: two classifiers that share the policy's place score after sampling."""

from pathlib import Path

import pytest

from agent_rl.cpu.tiny_model import CORPUS, make_classifier, make_tokenizer
from agent_rl.rewards.models.conversation import messages
from agent_rl.trajectory import Trajectory, trace
from tests.e2e.training import diffs, sums, train_recipe

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.timeout(900)]


@pytest.mark.usefixtures("run_processes")
def test_two_steps(tmp_path: Path, tiny_model: Path) -> None:
    import torch

    tokenizer = make_tokenizer(CORPUS, tmp_path / "preference", 512)
    classifiers = {}
    for seed, name in enumerate(("preference", "second")):
        tokenizer.save_pretrained(tmp_path / name)
        classifiers[name] = make_classifier(
            tmp_path / name, tokenizer, hidden=48, layers=2, max_positions=4096, seed=seed
        )
    logged = train_recipe(
        "bt_reward_model",
        tmp_path,
        sums(8, 4),
        f"actor_rollout_ref.model.path={tiny_model}",
        f"agent_rl.reward.models.preference.path={tmp_path}/preference",
        "agent_rl.reward.models.preference.placement=shared",
        "agent_rl.reward.models.preference.gpu_memory_utilization=0.3",
        f"agent_rl.reward.models.second={{path: {tmp_path}/second, placement: shared, gpu_memory_utilization: 0.3}}",
        "agent_rl.reward.components.other={kind: reward_model, weight: 0, config: {models: {second: {}}}}",
        "agent_rl.reward.components.quality.config.models.preference.shown=conversation",
    )
    assert list(logged) == [1, 2]
    assert max(diffs(logged)) < 1e-5

    def score(name: str, trajectory: Trajectory) -> float:
        prompt, response = messages(trajectory, "conversation")
        text = tokenizer.apply_chat_template([*prompt, *response], tokenize=False)
        with torch.no_grad():
            return float(classifiers[name](tokenizer(text, return_tensors="pt").input_ids).logits[0, 0])

    seen = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(seen) == 2 * 8 + 4
    for trajectory in seen:
        logits = trajectory.info["reward"]["logged"]
        assert logits["quality_preference"] == pytest.approx(score("preference", trajectory), abs=1e-3)
        assert logits["other_second"] == pytest.approx(score("second", trajectory), abs=1e-3)
    for metrics in logged.values():
        assert metrics["agent/unscored"] == 0
        assert 0 < metrics["agent/quality"] < 1
        assert metrics["agent/quality_raw"] == pytest.approx(metrics["agent/quality_preference"])
        parts = {"correctness": 1.0, "efficiency": 1.0, "format": 0.2, "quality": 0.2}
        total = sum(weight * metrics[f"agent/{name}"] for name, weight in parts.items())
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
    assert any("quality" in name for name in logged[2] if name.startswith("val-"))  # a validation scores late as well
