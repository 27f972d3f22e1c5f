"""Counts the Python of the package and its tests: `make size`."""

import ast
import subprocess
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
PARTS = {
    "agent_rl": ["agent_rl"],
    "tests": ["tests", ":!tests/gpu", ":!tests/support/bench"],
    "benchmarks, tests/gpu": ["benchmarks", "tests/support/bench", "tests/gpu"],
}
"""Paths of git for each row of the table."""


def main() -> None:
    """Print files, lines and statements (docstrings are statements) of each part, and of each folder of the package."""
    folders = {f"agent_rl/{each.name}": [f"agent_rl/{each.name}"] for each in sorted((ROOT / "agent_rl").iterdir())}
    table = Table("part", "files", "lines", "statements")
    for part, paths in (PARTS | folders).items():
        sources = [path.read_text() for path in python_files(paths)]
        if sources:
            lines = sum(source.count("\n") for source in sources)
            table.add_row(part, *(f"{number:,}" for number in (len(sources), lines, sum(map(statements, sources)))))
    Console().print(table)


def python_files(paths: Iterable[str]) -> list[Path]:
    """The files of the repository's index under these paths."""
    listed = subprocess.check_output(["git", "ls-files", "-z", *paths], cwd=ROOT, text=True)
    return [ROOT / name for name in listed.split("\0") if name.endswith(".py") and (ROOT / name).exists()]


def statements(source: str) -> int:
    """Statements of a module, also those in other statements."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(source)))


if __name__ == "__main__":
    main()
