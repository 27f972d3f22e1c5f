"""Writes the published results into the READMEs of recipes, between two comments.

    python docs/published.py            # as make docs does
    python docs/published.py --check    # exits with 1 if a README is stale, as make check does

The results come from the cards in recipes/published, and the differences from `agent-rl parity`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent_rl.evaluation.parity import Comparison, cards, compare

__all__ = ["main", "with_results"]

RECIPES = Path(__file__).parents[1] / "recipes"
MARKS = ("<!-- The published results, by make docs: do not edit. -->", "<!-- The end of the published results. -->")
"""Comments before and after the results."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Write the published results into the READMEs of recipes.")
    parser.add_argument("--check", action="store_true", help="Write nothing; exit with 1 if a README is stale")
    check = parser.parse_args(argv).check
    stale = []
    for name in sorted({name for card in cards().values() for name in card.recipes}):
        page = RECIPES / name / "README.md"
        old = page.read_text(encoding="utf-8")
        new = with_results(old, name)
        if new != old:
            stale.append(name)
            if not check:
                page.write_text(new, encoding="utf-8")
    if check and stale:
        sys.exit(
            f"the published results in the READMEs of {', '.join(stale)} do not match their cards. Run `make docs`."
        )
    print(f"published results: {', '.join(stale) or 'nothing'} {'is stale' if check else 'written'}")


def with_results(page: str, recipe: str) -> str:
    """Return a README with the results between the two comments; a recipe without cards needs no comments."""
    platform = os.environ.pop("VERL_PLATFORM", None)  # the results are about the GPU sizes
    try:
        lines = list(_lines(compare(recipe).values()))
    finally:
        os.environ |= {} if platform is None else {"VERL_PLATFORM": platform}
    block = "\n".join([MARKS[0], *lines, MARKS[1]])
    text, count = re.subn(f"(?s){re.escape(MARKS[0])}.*?{re.escape(MARKS[1])}", lambda _: block, page)
    if lines and count != 1:
        sys.exit(f"recipes/{recipe}/README.md: {MARKS[0]!r} and {MARKS[1]!r} must each occur once")
    return text


def _lines(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """Yield a list item for each run with figures; the nearest run of a size comes first, with what differs."""
    sizes = set()
    for comparison in comparisons:
        card, source = comparison.card, comparison.card.sources[0]
        words = " ".join(re.sub(r"^.*\.(?=\w+=)", "", word) for word in comparison.words)
        known = [] if comparison.another_task or words in sizes else comparison.known
        sizes.add(words)
        if card.numbers:
            figures = f"`{words}`: **{comparison.figures}** ([{card.run}]({source.url}), {source.read})"
            differences = "; ".join(map(str, known)).replace("<", "&lt;")
            yield f"- {figures}: {comparison.verdict}{': ' * bool(known)}{differences}."


if __name__ == "__main__":
    main()
