import pytest


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """A tiny untrained Qwen2 with its tokenizer."""
    from agent_rl.cpu.tiny_model import CORPUS, make_model, make_tokenizer

    folder = tmp_path_factory.mktemp("tiny")
    make_model(folder, make_tokenizer(CORPUS, folder), hidden=8, layers=1, heads=2, init_std=0.3)
    return str(folder)


@pytest.fixture(autouse=True)
def quick_delays(monkeypatch):
    from agent_rl.remote import http as remote

    monkeypatch.setattr(remote, "FIRST_DELAY_S", 0.01)
    monkeypatch.setattr(remote, "JITTER_S", 0.0)
