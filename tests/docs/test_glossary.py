"""One word, one meaning, one class: the glossary's classes exist, and no public name is defined twice."""

import ast
import re
from collections import defaultdict

import pytest

from tests.docs.pages import ROOT, exists, read

ROWS = re.findall(
    r"^\| ([\w -]+) \| (.+?) \| (?:`(agent_rl[\w.]+)`|verl)? ?\|$", read("docs/glossary.md"), re.MULTILINE
)


def test_words_are_in_order_and_once() -> None:
    words = [word for word, _, _ in ROWS if word not in ("word", "---")]
    assert len(words) > 40
    assert words == sorted(set(words))


@pytest.mark.parametrize(("word", "path"), [(word, path) for word, _, path in ROWS if path])
def test_a_word_has_its_class(word: str, path: str) -> None:
    assert exists(path), word


def test_no_public_class_is_defined_twice() -> None:
    places = defaultdict(list)
    for file in sorted((ROOT / "agent_rl").rglob("*.py")):
        if {"stand_ins", "families"} & set(
            file.parts
        ):  # they have the names of what they stand for, or of one contract
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
