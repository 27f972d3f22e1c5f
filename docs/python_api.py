"""The reference of the Python API: the names that users import, with signature and docstring, from the source.

Nothing is imported, so neither verl nor torch is needed.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["python_page"]

ROOT = Path(__file__).parents[1]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

MODULES = {
    "agent_rl": "The names that a script needs; each is loaded when it is used.",
    "agent_rl.tools": "Tools: the contract, tool files, and calls outside training.",
    "agent_rl.agents.episode.format": "How an agent's turns are written and read.",
    "agent_rl.agents.episode.policy": "Where turns come from.",
    "agent_rl.agents.episode.episode": "One episode, with any policy.",
    "agent_rl.trajectory": "What everything passes on.",
    "agent_rl.trajectory.trace": "Stored trajectories.",
    "agent_rl.rewards": "Scorers, components, and the reward that a configuration describes.",
    "agent_rl.data": "Rows.",
    "agent_rl.sandbox": "Programs that a model wrote.",
    "agent_rl.errors": "Whom a failure is for.",
}
"""Modules whose public names are documented."""


def python_page(title: str, paragraphs: Callable[[str], str]) -> str:
    """The page.

    Args:
        title: what stands above it.
        paragraphs: a docstring as Markdown.
    """
    parts = [f"{title}\n# Python API\n", "By the module to import from. Names with an underscore are not part of it.\n"]
    shown: dict[tuple[Path, str], str] = {}
    for module, about in MODULES.items():
        parts.append(f"## `{module}`\n\n{about}\n")
        elsewhere = []
        for name in _public(_source(module)):
            found = _definition(module, name)
            if found is None:
                continue
            path, node = found
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
    """A docstring whose sections (arguments, errors) are lists."""
    parts = []
    for part in text.split("\n\n"):
        head, _, body = part.partition("\n")
        if head not in ("Args:", "Attributes:", "Raises:", "Returns:", "Yields:"):
            parts.append(part)
            continue
        lines = inspect.cleandoc(body).splitlines()
        listed = "\n".join(f"- {line}" if line[:1].strip() else f"  {line.strip()}" for line in lines if line.strip())
        whole = "\n".join(lines)
        parts.append(f"**{head}** {whole}" if head in ("Returns:", "Yields:") else f"**{head}**\n{listed}")
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
    """The class or function of a name, where it is defined; None for a constant or an alias of a type."""
    path = _source(module)
    body = ast.parse(path.read_text()).body
    for node in [*body, *(inner for each in body if isinstance(each, ast.If) for inner in each.body)]:
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
        made = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
        head = f"class {name}({bases}):" if bases else f"class {name}:"
        fields = [
            f"    {ast.unparse(each)}"
            for each in node.body
            if isinstance(each, ast.AnnAssign) and not ast.unparse(each.target).startswith("_")
        ]
        lines = [f"    {_head(made)}"] if made else fields
        return "\n".join([head, *lines]) if lines else f"{head} ..."
    return _head(node)


def _head(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The signature, without the first lines' decorators."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{kind} {node.name}({ast.unparse(node.args)}){returns}"


def _methods(node: Definition) -> Iterator[str]:
    """The public methods of a class, each with the first paragraph of its docstring."""
    if not isinstance(node, ast.ClassDef):
        return
    rows = []
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_"):
            text = " ".join(inspect.cleandoc(ast.get_docstring(each) or "").split("\n\n")[0].split())
            kind = "property " if any(ast.unparse(d) == "property" for d in each.decorator_list) else ""
            shown = each.name if kind else f"{each.name}({', '.join(_names(each))})"
            rows.append(f"| {kind}`{shown}` | {text.replace('|', chr(92) + '|')} |")
    if rows:
        yield "\n".join(["| | |", "| --- | --- |", *rows]) + "\n"


def _names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = [*node.args.posonlyargs, *node.args.args]
    names = [each.arg for each in given if each.arg not in ("self", "cls")]
    return [*names, *(f"{each.arg}=" for each in node.args.kwonlyargs)]
