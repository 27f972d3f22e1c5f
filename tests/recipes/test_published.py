"""Every recipe's README says what was published about it, with its source, or that nothing is comparable."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_recipe_quotes_a_source_or_says_that_nothing_is_comparable() -> None:
    pages = {path.parent.name: path.read_text() for path in ROOT.glob("recipes/*/README.md")}
    texts = {name: page.partition("## Published by others\n\n")[2] for name, page in pages.items()}
    known = re.compile(r"None\b|(?s:.*)([0-9a-f]{7}\b|arXiv \d{4}\.\d{5}|model card)")
    assert [name for name, text in texts.items() if not known.match(text)] == ["svamp_calculator"]
