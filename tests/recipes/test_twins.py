"""Every twin's cold start and two steps of training; `agent-rl experiment` shows that they learn."""

import json

import pytest

from agent_rl.evaluation.experiments.experiment import Experiment
from tests.evaluation.experiments.tiny_twins import TWINS, tiny_twin

pytestmark = [pytest.mark.engine, pytest.mark.recipes]


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_trains_two_steps_and_its_solver_is_always_right(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SQL_DATABASES", str(tmp_path))
    words = ["trainer.total_training_steps=2", "trainer.test_freq=2", "trainer.save_freq=-1"]
    receipt = Experiment(str(tiny_twin(name, tmp_path)), 1, words, tmp_path / "runs").run(tmp_path / "results")
    assert "failed" not in receipt
    assert receipt["policies"]["oracle"] == 1.0
    assert max(mean for policy, mean in receipt["policies"].items() if policy != "oracle") <= 0.8  # of twelve rows
    (run,) = receipt["runs"].values()
    assert run["steps"] == 2
    assert json.loads((tmp_path / "results/receipt.json").read_text()) == receipt
