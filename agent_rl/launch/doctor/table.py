"""Prints findings as a table, or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_rl.preflight.check import Finding, Status

STYLES = {Status.PROBLEM: "bold red", Status.WARNING: "yellow", Status.OK: "green", Status.SKIPPED: "dim"}
SERIOUS = (Status.PROBLEM, Status.WARNING)
WIDEST = 120
"""Maximum width in columns; longer lines are hard to read."""


def show(findings: Sequence[Finding], console: Console, every: bool = True) -> None:
    """Print the table and a summary line; if `every` is false, the table shows only problems, then warnings."""
    selected = findings if every else [each for status in SERIOUS for each in findings if each.status is status]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", max_width=22, overflow="fold")
    table.add_column("result", no_wrap=True)
    table.add_column("finding -> what to change", overflow="fold")
    for group, members in groupby(selected, key=lambda finding: finding.group):
        table.add_section()
        table.add_row(Text(group, style="bold cyan"))
        for finding in members:
            text = Text(finding.text, style="dim" if finding.status is Status.SKIPPED else "")
            if finding.remedy:
                text.append(f"\n-> {finding.remedy}", style="bold")
            table.add_row(Text(finding.subject), Text(finding.status.value, style=STYLES[finding.status]), text)
    if selected:
        console.print(table, width=min(console.width, WIDEST))
    counts = Counter(finding.status for finding in findings)
    plural = {status: "s" * (counts[status] != 1) for status in (Status.PROBLEM, Status.WARNING)}
    parts = [f"{counts[status]} {status.value}{plural.get(status, '')}" for status in STYLES]
    verdict, style = ("not ready", "bold red") if has_problem(findings) else ("ready", "bold green")
    console.print(Text(f"{', '.join(parts)}: {verdict}.", style=style), highlight=False)
    if len(selected) < len(findings):
        console.print("--all shows every finding", style="dim", highlight=False)


def to_dict(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as JSON data, with `ok`, which is true if there is no problem."""
    return {"ok": not has_problem(findings), "findings": [asdict(finding) for finding in findings]}


def has_problem(findings: Sequence[Finding]) -> bool:
    """Whether the run would fail."""
    return any(finding.status is Status.PROBLEM for finding in findings)
