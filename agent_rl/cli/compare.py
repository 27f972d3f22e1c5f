"""The command `agent-rl compare`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from agent_rl.cli._arguments import Json, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from agent_rl.evaluation.comparison import Side
    from agent_rl.trajectory.estimates import Change

__all__ = ["GROUP", "app"]

GROUP = "look"

app = typer.Typer(add_completion=False)


@app.command()
def compare(
    places: Annotated[
        list[str], typer.Argument(metavar="A [B]", help="Runs, RUN@STEP, or evaluations; one run: its first, last step")
    ],
    as_json: Json = False,
) -> None:
    r"""Compare two evaluations, runs or steps, row by row.

    \b
      agent-rl compare outputs/eval/before outputs/eval/after
      agent-rl compare outputs/gsm8k_calculator@10 outputs/gsm8k_calculator@200
      agent-rl compare outputs/gsm8k_calculator

    The samples of a row are averaged; rows that only one side has do not count. The interval is that of the mean
    difference, 95 %. `better` and `worse` count rows, and `p` is their sign test: the probability of so uneven a split
    by chance.

    --json: `a`, `b`, and by measure `a`, `b`, `difference` (`mean`, `low`, `high`, `rows`), `better`, `worse`, `p`.
    """
    from rich.console import Console

    from agent_rl.evaluation.comparison import compare, sides_of

    one, other = sides_of(places)
    found = compare(one, other)
    if as_json:
        measures = {name: {"a": a, "b": b, **asdict(change)} for name, (a, b, change) in found.items()}
        print_json({"a": one.name, "b": other.name, "measures": measures})
    else:
        Console().print(_table(one, other, found))


def _table(one: Side, other: Side, found: dict[str, tuple[float, float, Change]]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    rows = max(change.difference.rows for _, _, change in found.values())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left")
    table.title = escape(f"A: {one.name}\nB: {other.name}\n{rows} rows")
    for name in ("", "A", "B", "B - A", "95 % interval", "better", "worse", "p"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, (a, b, change) in found.items():
        mean, low, high = change.difference.mean, change.difference.low, change.difference.high
        interval = "" if low is None or high is None else f"{low:+.3g} to {high:+.3g}"
        counts = (f"{change.better}", f"{change.worse}", f"{change.p:.2g}")
        table.add_row(name, f"{a:.3g}", f"{b:.3g}", f"{mean:+.3g}", interval, *counts)
    return table
