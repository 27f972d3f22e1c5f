"""Prints findings as a table, or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agent_rl.preflight.check import Finding, Status

__all__ = ["has_problem", "show", "to_dict"]

STYLES = {Status.OK: "green", Status.WARNING: "yellow", Status.PROBLEM: "bold red", Status.SKIPPED: "dim"}
WIDEST = 120
"""Columns; longer lines are hard to read."""
MOST_FIRST = 22
GAPS = 8
ARROW = "-> "


def show(findings: Sequence[Finding], console: Console) -> None:
    """Print the table and a line that sums it up."""
    width = min(console.width, WIDEST)
    labels = [label for finding in findings for label in (finding.subject, finding.group)]
    first = min(MOST_FIRST, max(map(len, labels), default=0))
    last = max(20, width - first - len(Status.PROBLEM.value) - GAPS)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("check", width=first)
    table.add_column("result", no_wrap=True)
    table.add_column("finding -> what to change", width=last)
    group = ""
    for finding in findings:
        if finding.group != group:
            group = finding.group
            table.add_section()
            table.add_row(Text(group, style="bold cyan"))
        status = Text(finding.status.value, style=STYLES[finding.status])
        table.add_row(_wrapped(finding.subject, first), status, _finding(finding, last))
    console.print(table)
    console.print(_summary(findings), highlight=False)


def to_dict(findings: Sequence[Finding]) -> dict[str, Any]:
    """JSON data: `{"ok": no problem, "findings": [...]}`."""
    return {"ok": not has_problem(findings), "findings": [finding.to_dict() for finding in findings]}


def has_problem(findings: Sequence[Finding]) -> bool:
    """Whether the run would fail."""
    return any(finding.status is Status.PROBLEM for finding in findings)


def _finding(finding: Finding, width: int) -> Text:
    text = _wrapped(finding.text, width)
    text.stylize("dim" if finding.status is Status.SKIPPED else "")
    if finding.remedy:
        remedy = _wrapped(finding.remedy, width - len(ARROW)).split("\n")
        for number, line in enumerate(remedy):
            text.append("\n" + (ARROW if number == 0 else " " * len(ARROW)))
            text.append(line.plain, style="bold")
    return text


def _wrapped(text: str, width: int) -> Text:
    """The text in lines of this width; a key or a path that is longer than a line breaks after a separator."""
    lines, line = [], ""
    for word in text.split():
        while word:
            room = width - len(line) - bool(line)
            if len(word) <= room:
                line, word = f"{line} {word}".lstrip(), ""
            elif len(word) <= width:
                lines.append(line)
                line = ""
            else:
                cut = _break(word[: max(0, room)]) or (0 if line else width)
                lines.append(f"{line} {word[:cut]}".strip())
                line, word = "", word[cut:]
    return Text("\n".join([*lines, line] if line else lines))


def _break(start: str) -> int:
    """Where to break a word that starts like this: after the last dot, slash or comma, else an underscore; else 0."""
    return max(start.rfind(mark) + 1 for mark in "./,=") or start.rfind("_") + 1


def _summary(findings: Sequence[Finding]) -> Text:
    counts = Counter(finding.status for finding in findings)
    parts = []
    for status in (Status.PROBLEM, Status.WARNING, Status.OK, Status.SKIPPED):
        number = counts[status]
        plural = "s" if number != 1 and status in (Status.PROBLEM, Status.WARNING) else ""
        parts.append(f"{number} {status.value}{plural}")
    verdict = "not ready" if has_problem(findings) else "ready"
    return Text(f"{', '.join(parts)}: {verdict}.", style="bold red" if has_problem(findings) else "bold green")
