"""The recipe multi_rm: two reward models that write, on servers of their own, and a customer's verdict."""

from pathlib import Path

import pytest

from agent_rl.data import service_dialogues
from agent_rl.trajectory import trace
from tests.e2e.training import diffs, train_recipe

pytestmark = [pytest.mark.engine, pytest.mark.recipes, pytest.mark.timeout(900)]


@pytest.mark.usefixtures("run_processes")
def test_two_steps(tmp_path: Path, tiny_model: Path) -> None:
    rows = {split: service_dialogues.rows(0, split, count) for split, count in (("train", 8), ("test", 4))}
    logged = train_recipe(
        "multi_rm",
        tmp_path,
        rows,
        f"actor_rollout_ref.model.path={tiny_model}",
        *(f"agent_rl.reward.models.{name}.path={tiny_model}" for name in ("helpful", "polite")),
    )
    assert list(logged) == [1, 2]
    assert max(diffs(logged)) < 1e-5
    for metrics in logged.values():
        assert metrics["agent/unscored"] == 0
        helpful, polite = (metrics[f"agent/quality_{name}"] for name in ("helpful", "polite"))
        assert metrics["agent/quality"] == pytest.approx((2 * helpful + polite) / 3)
        parts = {"correctness": 1.0, "efficiency": 1.0, "format": 0.2, "quality": 0.5, "manners": 0.1}
        total = sum(weight * metrics[f"agent/{name}"] for name, weight in parts.items())
        assert metrics["critic/score/mean"] == pytest.approx(total, abs=1e-5)
    seen = list(trace.read(tmp_path / "trace.jsonl"))
    assert len(seen) == 2 * 8 + 4
    assert all(trajectory.verdict is not None for trajectory in seen)
    found = {
        trajectory.info["reward"]["logged"][f"quality_{name}"] for trajectory in seen for name in ("helpful", "polite")
    }
    assert len(found) > 3  # digits, mapped to 0 and 1
    assert found <= {digit / 9 for digit in range(10)}
