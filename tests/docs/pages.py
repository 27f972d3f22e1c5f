"""The pages of the documentation, and what stands in them."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "docs/guides", "docs/reference", "recipes/*", "agent_rl", "tests", "tests/gpu", ".")
PAGES = sorted(
    str(path.relative_to(ROOT))
    for folder in FOLDERS
    for path in ROOT.glob(f"{folder}/*.md")
    if path.name != "judge.md"  # a prompt
)


def read(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", read(page), re.DOTALL | re.MULTILINE)


def block(page: str, language: str, containing: str) -> str:
    """The fenced block of a page that contains a text."""
    (found,) = (text for text in blocks(page, language) if containing in text)
    return found


class Command(NamedTuple):
    """A command that a page shows, with the variables before it."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return shlex.join(self.words)


def commands(page: str) -> Iterator[Command]:
    """The commands in the page's blocks of bash, continued lines joined, without their comments."""
    for text in blocks(page, "bash"):
        for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
            words = shlex.split(line, comments=True)
            environment = []
            while words and re.match(r"[A-Z_]+=", words[0]):
                name, _, value = words.pop(0).partition("=")
                environment.append((name, value))
            if words:
                yield Command(tuple(words), tuple(environment))


def anchors(page: str) -> set[str]:
    """What a link to a heading of the page may end with, as GitHub makes it."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def exists(name: str) -> bool:
    """Whether a dotted name is a module of the package, or a public name of one; nothing is imported."""
    if _source(name):
        return True
    module, _, attribute = name.rpartition(".")
    source = _source(module)
    return source is not None and attribute in _public_names(ast.parse(source.read_text()))


def _public_names(module: ast.Module) -> set[str]:
    """Return the names that a module lists in `__all__`, or else those that it defines without an underscore."""
    names: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {ast.unparse(target) for target in getattr(node, "targets", None) or [node.target]}
    return {name for name in names if not name.startswith("_")}


def _source(module: str) -> Path | None:
    path = ROOT / module.replace(".", "/")
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)
