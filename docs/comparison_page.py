"""Generates docs/comparison.md from docs/comparison.yaml, for docs/references.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

__all__ = ["comparison_page"]

CLAIMS = Path(__file__).with_name("comparison.yaml")
IN_A_TABLE = 5
"""Maximum peers per table, so the table stays readable."""


def comparison_page(note: str, table: Any) -> str:
    """Return the text of the page.

    Args:
        note: first line of the page.
        table: makes a Markdown table from columns and rows.

    Raises:
        KeyError: a peer lacks a claim in one of the rows.
    """
    facts = yaml.safe_load(CLAIMS.read_text())
    peers, ours = facts["peers"], facts["ours"]
    cells = {(claim["peer"], claim["row"]): _cell(claim) for claim in facts["claims"]}
    overview = [
        (f"[{name}]({peer['link']})", peer["is"], peer["version"], str(peer["read"])) for name, peer in peers.items()
    ]
    overview.insert(
        0, ("agent_rl", "recipes, agents, tools and rewards on verl 0.9.1, SGLang and Ray", "this repository", "")
    )
    names = list(peers)
    tables = [
        table(("", "agent_rl", *group), [(row, ours[row], *(cells[name, row] for name in group)) for row in ours])
        for group in (names[start : start + IN_A_TABLE] for start in range(0, len(names), IN_A_TABLE))
    ]
    return "\n".join([
        f"""{note}
# How it compares

This page compares agent_rl with other frameworks for reinforcement learning with tool-using agents, and with libraries
that such trainers use. The claims come from public repositories, documentation and packages of the versions below.
These projects change quickly, so check them before you decide. "Not found" means that the listed files do not mention
the feature; it may exist elsewhere. Only the `make bench` rows for TRL 1.16.0 and verifiers 0.4.0 are measurements.
`docs/comparison.yaml` lists the source of each claim.
""",
        table(("", "what it is", "version", "read on"), overview),
        "## In a table\n",
        "\n".join(tables),
        *_sections(facts["statements"]),
    ])  # fmt: skip


def _cell(claim: dict[str, str]) -> str:
    return f"not found ({claim['place']})" if claim["words"] == "not found" else claim["words"]


def _sections(statements: list[dict[str, str]]) -> Iterator[str]:
    """Yield the heading of each section, and its statements as a list."""
    for section in dict.fromkeys(statement["section"] for statement in statements):
        yield f"## {section}\n"
        lines = [_list_item(statement) for statement in statements if statement["section"] == section]
        yield "\n".join(lines) + "\n"


def _list_item(statement: dict[str, str]) -> str:
    title = statement["title"]
    separator = " " if title.endswith(".") else ": " if statement["section"] == "Which to choose" else ", "
    return f"- **{title}**{separator}{statement['words']}"
