import pytest

from agent_rl.remote import http as remote


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two attempts of a request."""
    monkeypatch.setattr(remote, "JITTER_S", 0.0)
    monkeypatch.setattr(remote, "FIRST_DELAY_S", 0.01)
