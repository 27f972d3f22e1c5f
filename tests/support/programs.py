"""The programs in `tests/agents/sessions/programs`, and the Python that has what they import (`make programs`)."""

from pathlib import Path

import pytest

__all__ = ["PROGRAMS", "PYTHON", "needs_programs"]

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests/agents/sessions/programs"
PYTHON = ROOT / "outputs/environments/programs/bin/python"

needs_programs = pytest.mark.skipif(not PYTHON.is_file(), reason="make programs")
