"""Runs the cells of a notebook as Jupyter does, and stores their output below them."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["executed"]


def executed(path: Path) -> str:
    """Run a notebook in its folder, and return its text with the output of each cell; cells may await.

    Raises:
        Exception: a cell raised it.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    before = os.getcwd(), tempfile.tempdir
    os.chdir(path.parent)
    try:
        with (
            tempfile.TemporaryDirectory() as tempfile.tempdir,  # for files that the cells leave behind
            asyncio.Runner() if hasattr(asyncio, "Runner") else contextlib.nullcontext() as runner,
        ):
            code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
            for number, cell in enumerate(code, start=1):
                text = _run("".join(cell["source"]), f"cell {number}", names, runner)
                stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
                cell |= {"execution_count": number, "outputs": [stream] if text else []}
    finally:
        os.chdir(before[0])
        tempfile.tempdir = before[1]
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _run(source: str, name: str, names: dict[str, Any], runner: Any) -> str:
    """Run a cell, and return what it prints."""
    code = compile(source, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if code.co_flags & inspect.CO_COROUTINE:
            coroutine = eval(code, names)  # noqa: S307 - a cell of our own notebook
            runner.run(coroutine) if runner is not None else asyncio.run(coroutine)
        else:
            exec(code, names)  # noqa: S102 - a cell of our own notebook
    return out.getvalue()
