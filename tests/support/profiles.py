"""How much a test tries: a bounded number by default, all of it with HYPOTHESIS_PROFILE=full (`make test-recipes`)."""

import os

import hypothesis
import pytest

FULL = os.environ.get("HYPOTHESIS_PROFILE") == "full"

hypothesis.settings.register_profile("default", max_examples=40, deadline=None)
hypothesis.settings.register_profile("full", max_examples=300, deadline=None)

bounded = pytest.mark.bounded
"""A test that tries less in `make test` than in `make test-recipes`; hypothesis's own tests need no mark."""


def times(default: int, full: int) -> int:
    return full if FULL else default


def load() -> None:
    hypothesis.settings.load_profile("full" if FULL else "default")
