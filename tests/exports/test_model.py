"""An exported model says what the checkpoint says, as a folder and as one file for llama.cpp."""

import json

import pytest
from typer.testing import CliRunner

from agent_rl.cli.main import app
from tests.policies.conftest import model_dir
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


def test_a_run_becomes_a_model_and_a_file_for_llama_cpp(run, tmp_path, model_dir):
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    to = tmp_path / "to"
    done = export(run, "--to", to, "--gguf", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["serve"][2] == f"llama-server --jinja --model {to}/model.gguf"
    merged = logits(loaded(run / "checkpoints/global_step_3/merged_model"))
    assert torch.equal(logits(loaded(to)), merged)
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(to, gguf_file="model.gguf")), merged, atol=1e-5)
    generation = json.loads((to / "generation_config.json").read_text())
    assert (generation["temperature"], generation["top_p"]) == (0.7, 0.9)
    assert generation["top_k"] == json.loads((to / "config.json").read_text())["vocab_size"]  # SGLang refuses 0
    ours, theirs = AutoTokenizer.from_pretrained(to), AutoTokenizer.from_pretrained(to, gguf_file="model.gguf")
    messages = [{"role": "user", "content": "What is 12 + 345?"}]
    assert ours.chat_template == theirs.chat_template
    assert ours.apply_chat_template(messages)["input_ids"] == theirs.apply_chat_template(messages)["input_ids"]
    fields = gguf.GGUFReader(to / "model.gguf").fields
    assert fields["tokenizer.ggml.eos_token_id"].contents() == ours.eos_token_id  # transformers reads another
    back = tmp_path / "back"
    done = CliRunner().invoke(app, ["model", "from-gguf", str(to / "model.gguf"), str(back), "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["types"]) <= {"F32", "BF16"}
    again = AutoTokenizer.from_pretrained(back)
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(back)), merged, atol=1e-5)
    assert again.apply_chat_template(messages)["input_ids"] == ours.apply_chat_template(messages)["input_ids"]
    assert again.eos_token == ours.eos_token
    assert json.loads((back / "generation_config.json").read_text())["eos_token_id"] == ours.eos_token_id


def test_what_cannot_be_exported_says_so(run, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a").touch()
    assert "is not empty" in str(export(run, "--to", tmp_path / "full").exception)
    (run / "checkpoints/global_step_3/actor/huggingface/chat_template.jinja").unlink()
    assert "has no chat template" in str(export(run, "--to", tmp_path / "bare").exception)
    assert not (tmp_path / "bare").exists()
