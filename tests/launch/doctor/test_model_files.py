import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from agent_rl.launch.doctor.model_files import find_model, parameters_by_shape

pytestmark = pytest.mark.trainer


def test_the_files_tell_the_number_that_the_model_has(tiny_model: Path) -> None:
    real = AutoModelForCausalLM.from_pretrained(tiny_model).num_parameters()
    found = find_model(str(tiny_model))
    assert (found.parameters, found.broken) == (real, [])
    assert found.source == "its safetensors files"
    assert found.config["model_type"] == "qwen2"
    assert found.kv_values_per_token == 2 * 3 * 96


@pytest.mark.parametrize(
    ("shape", "billions"),
    [
        # as published for Qwen2.5-3B, Llama-3.1-8B and Mixtral-8x7B
        ((2048, 36, 16, 2, 11008, 151936, True, 0), 3.09),
        ((4096, 32, 32, 8, 14336, 128256, False, 0), 8.03),
        ((4096, 32, 32, 8, 14336, 32000, False, 8), 46.7),
    ],
)
def test_parameters_are_estimated_from_the_shape(shape: tuple[int, ...], billions: float) -> None:
    names = ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"]
    names += ["vocab_size", "tie_word_embeddings", "num_local_experts"]
    assert parameters_by_shape(dict(zip(names, shape, strict=True))) / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_name_tells_it_when_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    found = find_model("Qwen/Qwen2.5-3B-Instruct")
    assert (found.parameters, found.source, found.folder) == (3_000_000_000, "its name", None)
    assert find_model("some/model").parameters is None
    assert find_model("mistralai/Mixtral-8x7B-Instruct-v0.1").parameters == 56_000_000_000  # of the experts
    assert find_model("Qwen/Qwen3-30B-A3B").parameters == 30_000_000_000


def test_a_hub_name_is_found_in_the_cache(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--me--tiny-7B/snapshots/abc"
    shutil.copytree(tiny_model, snapshot)
    (tmp_path / "models--me--tiny-7B/refs").mkdir()
    (tmp_path / "models--me--tiny-7B/refs/main").write_text("abc")
    found = find_model("me/tiny-7B")
    assert found.folder == snapshot
    assert found.parameters == find_model(str(tiny_model)).parameters


def test_a_file_that_was_cut_short_and_one_that_is_absent_are_found(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5000])
    assert find_model(str(folder)).broken == ["model.safetensors"]
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert find_model(str(folder)).broken == sorted(index["weight_map"].values())


def test_a_multimodal_config_keeps_its_own_type(tmp_path: Path) -> None:
    config = {"model_type": "qwen2_5_vl", "text_config": {"model_type": "qwen2", "hidden_size": 8}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = find_model(str(tmp_path)).config
    assert (found["model_type"], found["hidden_size"]) == ("qwen2_5_vl", 8)
