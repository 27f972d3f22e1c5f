import pytest


@pytest.fixture(autouse=True)
def short_pauses(quick_delays: None) -> None:
    """Between two attempts of a request."""
