"""An exported model says what the checkpoint says."""

import json

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from tests.agents.policies.conftest import model_dir
from tests.verl_adapter.test_checkpoints import checkpoint, loaded, logits, model

__all__ = ["checkpoint", "model", "model_dir"]

pytestmark = pytest.mark.trainer


@pytest.fixture
def run(checkpoint, model):
    """A run's folder with one checkpoint and its record."""
    folder = checkpoint(model.state_dict()).parent
    rollout = {"temperature": 0.7, "top_p": 0.9, "top_k": -1}
    (folder / "run.json").write_text(json.dumps({"configuration": {"actor_rollout_ref": {"rollout": rollout}}}))
    return folder


def export(*words):
    return CliRunner().invoke(app, ["export", *map(str, words)])


def test_a_run_becomes_a_model_that_servers_load(run, tmp_path, model_dir):
    import torch

    to = tmp_path / "to"
    done = export(run, "--to", to, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["serve"][1] == f"vllm serve {to}"
    assert torch.equal(logits(loaded(to)), logits(loaded(run / "checkpoints/global_step_3/merged_model")))
    generation = json.loads((to / "generation_config.json").read_text())
    assert (generation["temperature"], generation["top_p"]) == (0.7, 0.9)
    assert generation["top_k"] == json.loads((to / "config.json").read_text())["vocab_size"]  # SGLang refuses 0


def test_what_cannot_be_exported_says_so(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a").touch()
    assert "is not empty" in str(export(run, "--to", tmp_path / "full").exception)
    (run / "checkpoints/global_step_3/actor/huggingface/chat_template.jinja").unlink()
    assert "has no chat template" in str(export(run, "--to", tmp_path / "bare").exception)
    assert not (tmp_path / "bare").exists()
