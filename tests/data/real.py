"""Real data sets in their raw form, which are not part of the project: tests that need one skip where it is absent."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def shared(name: str) -> Path:
    """The path of a file of the real data sets."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return path
