"""Before anything imports verl: the platform, where caches go, and the one warning that the import raises."""

import os
import secrets
import warnings
from pathlib import Path

os.environ.setdefault("VERL_PLATFORM", "cpu")
os.environ.setdefault("HF_HOME", str(Path(__file__).parent.parent / "outputs" / "cache"))
os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray keeps one in the home directory

with warnings.catch_warnings():
    # Ray's own module raises it while verl imports it.
    warnings.filterwarnings("ignore", "Ray state API is no longer experimental", DeprecationWarning)
    import verl.experimental.agent_loop  # noqa: F401
