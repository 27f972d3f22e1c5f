"""Judges the tests by what they catch: plants faults in the package, one at a time, and runs the tests of the module.

    python tests/planted_faults.py list                    # the faults that can be planted here, one a line
    python tests/planted_faults.py run --count 50          # plant 50 of them, and say which were caught
    python tests/planted_faults.py run --like other.txt    # only faults that another tree's list has as well

A fault is one small change inside a function: a comparison, an `and`, a sign, a number, a truth value or a `return`. It
is named by its function, its line and its change, so that the same fault is found in a tree where the file has moved.
The choice depends on these names alone. Each is planted in a copy of the tree; first the test file of the module runs,
then the tests of its folder. What needs the engine or the trainer is not run.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "agent_rl"
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
TIMEOUT_S = 300


@dataclass(frozen=True)
class Fault:
    """One change: `before` at `start` of a file's text becomes `after`."""

    path: str
    function: str
    line: str
    start: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """The same in every tree that has the function with this line."""
        return f"{self.function} | {self.line} | {self.before} -> {self.after}"

    @property
    def rank(self) -> str:
        """Decides on the order of choice."""
        return hashlib.sha256(self.name.encode()).hexdigest()


def changed(node: ast.AST) -> ast.AST | None:
    """The faulty form of an expression or statement; None: there is none."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators)  # type: ignore[list-item]
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(SWAPS[type(node.op)](), node.values)  # type: ignore[arg-type]
    if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        return ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return ast.Constant(node.value + 1)
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return ast.Return(ast.Constant(None))
    return None


def faults_of(root: Path) -> Iterator[Fault]:
    """Every fault that can be planted in a tree, on single lines of functions."""
    for path in sorted((root / PACKAGE).rglob("*.py")):
        if "stand_ins" in path.parts:
            continue
        text = path.read_text()
        lines = text.splitlines(keepends=True)
        offsets = [0]
        for line in lines:
            offsets.append(offsets[-1] + len(line.encode()))
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for statement in function.body:
                for node in ast.walk(statement):
                    if getattr(node, "lineno", 0) != getattr(node, "end_lineno", -1):
                        continue
                    made = changed(node)
                    if made is None:
                        continue
                    start = offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
                    before = ast.get_source_segment(text, node) or ""
                    after = ast.unparse(ast.fix_missing_locations(made))
                    if isinstance(made, ast.expr) and not isinstance(made, ast.Constant):
                        after = f"({after})"
                    line = lines[node.lineno - 1].strip()  # type: ignore[attr-defined]
                    yield Fault(str(path.relative_to(root)), function.name, line, start, before, after)


def chosen(faults: list[Fault], count: int, names: set[str] | None) -> list[Fault]:
    """The first `count` by rank, no two in one function and no more of a folder than its share of all faults."""
    share: dict[str, int] = {}
    for fault in faults:
        share[folder_of(fault)] = share.get(folder_of(fault), 0) + 1
    left = {folder: max(1, round(count * n / len(faults)) + 1) for folder, n in share.items()}
    taken: dict[tuple[str, str], Fault] = {}
    for fault in sorted(faults, key=lambda fault: fault.rank):
        key = (fault.path, fault.function)
        if key in taken or left[folder_of(fault)] == 0 or (names is not None and fault.name not in names):
            continue
        left[folder_of(fault)] -= 1
        taken[key] = fault
        if len(taken) == count:
            break
    return list(taken.values())


def folder_of(fault: Fault) -> str:
    """The folder of the package."""
    return Path(fault.path).parts[1]


def tests_of(root: Path, fault: Fault) -> list[list[str]]:
    """Arguments for pytest, narrow ones first."""
    inside = Path(fault.path).relative_to(PACKAGE)
    own = Path("tests") / inside.parent / f"test_{inside.stem.lstrip('_')}.py"
    folders = [Path("tests") / folder for folder in inside.parents if folder != Path()]
    paths = [str(path) for path in (own, *folders) if (root / path).exists()]
    return [[path] for path in paths] or [["tests", "--ignore=tests/e2e", "--ignore=tests/recipes"]]


def is_caught(copy: Path, fault: Fault) -> str | None:
    """Plant a fault in a copy of the tree: the tests that caught it, None where none did."""
    path = copy / fault.path
    whole = path.read_bytes()
    end = fault.start + len(fault.before.encode())
    path.write_bytes(whole[: fault.start] + fault.after.encode() + whole[end:])
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        for arguments in tests_of(copy, fault):
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
            command += ["-m", "not engine and not benchmark and not recipes and not gpu"]
            try:
                done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                return f"{arguments[0]} (timeout)"
            if done.returncode not in (0, 5):  # 5: no test is left
                return arguments[0]
    finally:
        path.write_bytes(whole)
    return None


def run(root: Path, faults: list[Fault], out: Path | None) -> int:
    """Plant the faults, print what came of each, and return how many were caught."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".git", ".venv*", "outputs", "__pycache__", ".*_cache", ".hypothesis")
        shutil.copytree(root, copy, ignore=ignored)
        for fault in faults:
            began = time.monotonic()
            by = is_caught(copy, fault)
            rows.append({"fault": fault.name, "path": fault.path, "caught_by": by})
            print(
                f"{'caught' if by else 'MISSED'} {time.monotonic() - began:4.0f} s  {fault.path}: {fault.name}",
                flush=True,
            )
            if out is not None:
                out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    caught = sum(row["caught_by"] is not None for row in rows)
    print(f"{caught} of {len(rows)} planted faults were caught")
    return caught


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["list", "run"])
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--like", type=Path, action="append", help="file with names of faults; the others are left out")
    parser.add_argument("--out", type=Path, help="JSONL file for the outcome")
    arguments = parser.parse_args()
    faults = list(faults_of(arguments.root))
    if arguments.what == "list":
        print(*sorted({fault.name for fault in faults}), sep="\n")
        return
    names = None
    for file in arguments.like or []:
        found = set(file.read_text().splitlines())
        names = found if names is None else names & found
    run(arguments.root, chosen(faults, arguments.count, names), arguments.out)


if __name__ == "__main__":
    main()
