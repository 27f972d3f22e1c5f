"""verl on a CPU, with a tokenizer that is made here, and a server that plays scripts."""

import pytest


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """A tiny untrained Qwen2 with its tokenizer."""
    from agent_rl.backend.tiny_model import CORPUS, make_model, make_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder, make_tokenizer(CORPUS, folder), hidden=8, layers=1, heads=2)
    return folder


@pytest.fixture(scope="session")
def tokenizer(model_dir):
    from verl.utils import hf_tokenizer

    return hf_tokenizer(str(model_dir))


@pytest.fixture(scope="session")
def builder(tokenizer):
    """verl's own, as its agent loops make it for this model."""
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    return create_continuous_token_builder(tokenizer, hf_model_type="qwen2")


@pytest.fixture(scope="session")
def compose(model_dir):
    """The configuration that verl's trainer would run with."""
    import hydra

    def _compose(*overrides):
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            return hydra.compose(
                "ppo_trainer",
                overrides=[
                    "actor_rollout_ref.rollout.name=sglang",
                    f"actor_rollout_ref.model.path={model_dir}",
                    "data.max_prompt_length=1024",
                    "data.max_response_length=512",
                    *overrides,
                ],
            )

    return _compose


@pytest.fixture
def run_loop(compose, tokenizer):
    """Makes a loop as verl's worker does and runs it over one row; what it gave, and the server."""
    import asyncio

    from tests.loops.server import Server, make_loop

    def run(name, *turns, overrides=(), tools=None, **row):
        server = Server(tokenizer, *turns)
        row = {"raw_prompt": [{"role": "user", "content": "Question?"}], "uid": "u", "session_id": 0, **row}

        async def inside():
            loop = make_loop(compose(*overrides), server, tokenizer, name=name, tools=tools)
            return await loop.run({"temperature": 1.0, "logprobs": True}, **row)

        return asyncio.run(inside()), server

    return run
