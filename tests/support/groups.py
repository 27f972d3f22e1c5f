"""Which tests run in one process when there are several: those of a file, those with an engine, those with the trainer.

pytest-xdist's own `--dist loadgroup` has no effect with pytest 9.2, which keeps a test's id elsewhere.
"""

import functools
import re
from pathlib import Path
from typing import Any

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[2]
TRAINERS_FOLDERS = ("benchmarks/", "tests/cpu/", "tests/e2e/", "tests/gpu/", "tests/recipes/", "tests/verl_adapter/")
DECLARED = re.compile(r"^pytestmark = \[?[^=\]]*pytest\.mark\.(trainer|engine)\b", re.MULTILINE)
FIRST = ("engine", "trainer")
"""The groups that take longest."""


@functools.cache
def group(path: str) -> str:
    """The group of a file, by its path in the repository."""
    text = (ROOT / path).read_text()
    if "pytest.mark.engine" in text:
        return "engine"
    if DECLARED.search(text) or path.startswith(TRAINERS_FOLDERS):
        return "trainer"
    return path


def rank(path: Path) -> int:
    name = group(str(path.relative_to(ROOT)))
    return FIRST.index(name) if name in FIRST else len(FIRST)


class Groups(LoadScopeScheduling):
    """Hands whole groups to the processes, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.split("::")[0])


def scheduler(config: Any, log: Any) -> Groups:
    return Groups(config, log)
