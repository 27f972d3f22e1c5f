import pytest


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """A tiny untrained Qwen2 with its tokenizer."""
    from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder, make_tokenizer(CORPUS, folder), hidden=8, layers=1, heads=2, init_std=0.3)
    return str(folder)
