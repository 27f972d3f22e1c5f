import asyncio
import shutil

import pytest

from agent_rl.cpu import switch
from agent_rl.cpu.profile import LARGE, profile_of
from agent_rl.errors import ConfigError
from agent_rl.evaluation.settings import read_settings
from agent_rl.evaluation.sources import open_source, server_command
from tests.support.openai_server import MODEL, Server


def opened(tmp_path, *words, **flags):
    async def ask():
        async with open_source(read_settings({"data": "x", **flags}, words), tmp_path) as source:
            return type(source).__name__

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("flags", "words", "said"),
    [
        ({"model": "nowhere"}, [], "model: nowhere is neither a model .* nor a training checkpoint"),
        ({"model": "nowhere"}, ["policy=local"], "model: nowhere is neither"),
        ({"model": "m"}, ["policy=vllm"], "endpoint: agent-rl does not start vLLM servers"),
        ({"model": "m", "endpoint": "http://host"}, ["policy=local"], "endpoint: policy=local does not use"),
    ],
)
def test_what_does_not_go_together(tmp_path, flags, words, said):
    with pytest.raises(ConfigError, match=said):
        opened(tmp_path, *words, **flags)


def test_a_server_needs_a_device_or_the_switch(tmp_path, model_dir, monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.setattr("agent_rl.evaluation.sources.has_accelerator", lambda: False)
    with pytest.raises(ConfigError, match="VERL_PLATFORM: there is no accelerator"):
        opened(tmp_path, model=model_dir)


def test_a_server_on_a_cpu_computes_as_training_does(tmp_path, monkeypatch):
    monkeypatch.setattr(switch, "_set_here", {"OMP_NUM_THREADS"})
    with open(tmp_path / "model.safetensors", "wb") as file:
        file.truncate(LARGE)
    command, environment = server_command(tmp_path, "m", 20_000)
    profile = profile_of(tmp_path)
    assert command[command.index("--dtype") + 1] == profile.dtype
    assert environment["OMP_NUM_THREADS"] == str(profile.threads)


def test_a_model_takes_its_tokenizer_from_another_folder(tmp_path, model_dir):
    only_tokenizer = tmp_path / "tokenizer"
    shutil.copytree(model_dir, only_tokenizer, ignore=shutil.ignore_patterns("*.safetensors"))
    assert opened(tmp_path, "policy=local", f"tokenizer={only_tokenizer}", model=model_dir) == "LocalModel"


def test_a_source_is_open_and_checked(tmp_path):
    async def ask(model):
        async with Server() as server:
            given = read_settings({"data": "x", "model": model, "endpoint": server.url}, ["sampling.temperature=0"])
            async with open_source(given, tmp_path) as source:
                return source.sampling.temperature

    assert asyncio.run(ask(MODEL)) == 0
    with pytest.raises(ConfigError, match="has no model"):
        asyncio.run(ask("other"))


def test_a_source_of_tokens_does_as_training_would(tmp_path, model_dir):
    async def ask(*words):
        given = read_settings({"data": "x", "model": model_dir}, ["policy=local", *words])
        async with open_source(given, tmp_path) as source:
            return source.logprobs, source.drop_thoughts

    assert asyncio.run(ask()) == (False, False)
    assert asyncio.run(ask("agent_rl.trace.tokens=true", "agent_rl.thinking.history=template")) == (True, True)
