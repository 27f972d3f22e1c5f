"""Before anything imports verl: the platform, where caches go, and the one warning that the import raises."""

import os
import secrets
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("HF_HOME", str(Path(__file__).parent.parent / "outputs" / "cache"))
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray keeps one in the home directory

with warnings.catch_warnings():
    # Ray's own module raises it while verl imports it.
    warnings.filterwarnings("ignore", "Ray state API is no longer experimental", DeprecationWarning)
    import verl.experimental.agent_loop  # noqa: F401


@pytest.fixture(autouse=True, scope="module")
def _no_scorers_process_is_left() -> Iterator[None]:
    """What scorers keep for the process they run in is not for other tests, which count processes."""
    yield
    for name, kept in (("scorer", "_background"), ("_worker", "_pool")):
        module = sys.modules.get(f"agent_rl.rewards.scorers.{name}")
        if module is not None:
            getattr(module, kept).close()
