"""Generates the reference of the Python API from the source: public names with signatures and docstrings.

It does not import the modules, so neither verl nor torch is needed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["python_page"]

ROOT = Path(__file__).parents[1]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

MODULES = {
    "agent_rl": "The names that a script needs; each is imported on first use.",
    "agent_rl.tools": "Tools: the contract, tool files, and calls outside training.",
    "agent_rl.agents.episode.format": "How an agent's turns are written and read.",
    "agent_rl.agents.episode.policy": "Where turns come from.",
    "agent_rl.agents.episode.episode": "One episode, with any policy.",
    "agent_rl.trajectory": "The record of an episode, which all other parts read.",
    "agent_rl.trajectory.trace": "Stored trajectories.",
    "agent_rl.rewards": "Scorers, components, and the reward that a configuration describes.",
    "agent_rl.data": "Rows: making, checking, reading and writing them.",
    "agent_rl.sandbox": "Running programs that a model wrote.",
    "agent_rl.errors": "Exceptions, by who can fix the failure.",
}
"""Modules whose public names are documented."""


def python_page(title: str, paragraphs: Callable[[str], str]) -> str:
    """Return the text of the page.

    Args:
        title: first lines of the page.
        paragraphs: converts a docstring to Markdown.
    """
    parts = [f"{title}\n# Python API\n", "This page lists the public names by the module to import them from.\n"]
    shown: dict[tuple[Path, str], str] = {}
    for module, about in MODULES.items():
        parts.append(f"## `{module}`\n\n{about}\n")
        elsewhere = []
        for name in _public(_source(module)):
            definition = _definition(module, name)
            if definition is None:
                continue
            path, node = definition
            if (path, node.name) in shown:
                elsewhere.append(f"`{name}` is in [`{shown[path, node.name]}`](#{_anchor(shown[path, node.name])})")
                continue
            shown[path, node.name] = module
            parts.append(f"### `{name}`\n\n```python\n{_signature(node, name)}\n```\n")
            parts.append(paragraphs(_sections(inspect.cleandoc(ast.get_docstring(node) or ""))))
            parts += _methods(node)
        if elsewhere:
            parts.append(f"{'; '.join(elsewhere)}.\n")
    return "\n".join(parts)


def _sections(text: str) -> str:
    """Return a docstring with its sections (arguments, errors) as lists."""
    parts = []
    for part in text.split("\n\n"):
        head, _, body = part.partition("\n")
        if head not in ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:"):
            parts.append(part)
            continue
        lines = textwrap.dedent(body).splitlines()
        items = "\n".join(f"- {line}" if line[:1].strip() else f"  {line.strip()}" for line in lines if line.strip())
        whole = "\n".join(lines)
        parts.append(f"**{head}** {whole}" if head in ("Returns:", "Yields:") else f"**{head}**\n{items}")
    return "\n\n".join(parts)


def _anchor(module: str) -> str:
    return module.replace(".", "")


def _source(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def _public(path: Path) -> list[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    raise ValueError(f"{path} has no __all__")


def _definition(module: str, name: str) -> tuple[Path, Definition] | None:
    """Return the file and node that define a class or function; None for a constant or a type alias."""
    path = _source(module)
    body = ast.parse(path.read_text()).body
    for node in [*body, *(inner for block in body if isinstance(block, ast.If) for inner in block.body)]:
        if isinstance(node, Definition) and node.name == name:
            return path, node
        if isinstance(node, ast.ImportFrom) and node.module and node.module != module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definition(node.module, alias.name) if node.module.startswith("agent_rl") else None
    return None


def _signature(node: Definition, name: str) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
        constructor = next((method for method in methods if method.name == "__init__"), None)
        head = f"class {name}({bases}):" if bases else f"class {name}:"
        fields = [
            f"    {ast.unparse(item)}"
            for item in node.body
            if isinstance(item, ast.AnnAssign) and not ast.unparse(item.target).startswith("_")
        ]
        lines = [f"    {_head(constructor)}"] if constructor else fields
        return "\n".join([head, *lines]) if lines else f"{head} ..."
    return _head(node)


def _head(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the signature of a function, without decorators."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{kind} {node.name}({ast.unparse(node.args)}){returns}"


def _methods(node: Definition) -> Iterator[str]:
    """Yield a table of the public methods of a class, with the first paragraph of each docstring."""
    if not isinstance(node, ast.ClassDef):
        return
    rows = []
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and not item.name.startswith("_"):
            text = " ".join(inspect.cleandoc(ast.get_docstring(item) or "").split("\n\n")[0].split())
            kind = "property " if any(ast.unparse(d) == "property" for d in item.decorator_list) else ""
            call = item.name if kind else f"{item.name}({', '.join(_parameters(item))})"
            rows.append(f"| {kind}`{call}` | {text.replace('|', chr(92) + '|')} |")
    if rows:
        yield "\n".join(["| | |", "| --- | --- |", *rows]) + "\n"


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    positional = [*node.args.posonlyargs, *node.args.args]
    names = [argument.arg for argument in positional if argument.arg not in ("self", "cls")]
    return [*names, *(f"{argument.arg}=" for argument in node.args.kwonlyargs)]
