"""The `agent-rl compare` command."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent_rl.cli._arguments import Json, print_result
from agent_rl.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from agent_rl.trajectory.estimates import Change
    from agent_rl.trajectory.viewer.index import TraceIndex

app = typer.Typer(rich_help_panel="look", add_completion=False)


@app.command()
def compare(
    places: Annotated[
        list[str],
        typer.Argument(metavar="A [B]", help="Runs, RUN@STEP or evaluations; one run means its first and last steps"),
    ],
    as_json: Json = False,
) -> None:
    r"""Compare two evaluations, runs or steps, row by row.

    \b
      agent-rl compare outputs/eval/before outputs/eval/after
      agent-rl compare outputs/gsm8k_calculator@10 outputs/gsm8k_calculator@200
      agent-rl compare outputs/gsm8k_calculator

    The samples of a row are averaged; rows that exist on only one side are ignored. The interval is the 95% interval of
    the mean difference. `better` and `worse` count rows; `p` is the result of a sign test: the probability that chance
    alone would split the rows at least this unevenly.

    --json: `a`, `b`, `measures` (each: `a`, `b`, `difference` (`mean`, `low`, `high`, `rows`), `better`, `worse`, `p`).
    """
    from contextlib import closing

    from agent_rl.trajectory.viewer.index import TraceIndex
    from agent_rl.trajectory.viewer.records import find_sources

    if len(places) > 2:
        raise ConfigError(
            "A B", f"{len(places)} runs or evaluations were given", "Pass two runs or evaluations, or one run"
        )
    # the path of a run may contain `@` too
    parts = [(each, "") if "@" not in each or Path(each).exists() else each.rpartition("@")[::2] for each in places]
    paths, steps = zip(*parts, strict=True)
    with closing(TraceIndex(find_sources(paths))) as index:
        index.refresh()
        named = {source.path: source.name for source in index.sources}
        names = [named[find_sources([path])[0].path] for path in paths]
        sides = [
            (name, _step(index, name, place, step)) for name, place, step in zip(names, places, steps, strict=True)
        ]
        if len(sides) == 1:
            sides = [(names[0], step) for step in index.ends(names[0])]
        _, changes = index.compare(*sides)
    first, second = (name if step is None else f"{name}, step {step}" for name, step in sides)
    if not changes or sides[0] == sides[1]:
        remedy = "Evaluate both on the same rows: agent-rl eval RUN"
        raise ConfigError("A B", f"no row has a scored sample in both {first} and {second}", remedy)
    measures = {name: {"a": a, "b": b, **asdict(change)} for name, (a, b, change) in changes.items()}
    print_result({"a": first, "b": second, "measures": measures}, as_json, _table(first, second, changes))


def _step(index: TraceIndex, file: str, place: str, step: str) -> int | None:
    """Return the step in RUN@STEP; if no step is given, a run's last step, or None for an evaluation."""
    from agent_rl.trajectory.viewer.query import Query

    bounds = index.ends(file)
    if not step:
        return bounds[1]
    if step.isdigit() and index.count(Query({"file": file, "step": step})):
        return int(step)
    remedy = f"Remove @{step}" if bounds[0] is None else f"Choose a step from {bounds[0]} to {bounds[1]}"
    raise ConfigError(place, f"there is no step {step}", remedy)


def _table(first: str, second: str, changes: dict[str, tuple[float, float, Change]]) -> Table:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    rows = max(change.difference.rows for _, _, change in changes.values())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), title_justify="left")
    table.title = escape(f"A: {first}\nB: {second}\n{rows} rows")
    for name in ("", "A", "B", "B - A", "95% interval", "better", "worse", "p"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, (a, b, change) in changes.items():
        mean, low, high = change.difference.mean, change.difference.low, change.difference.high
        interval = "" if low is None or high is None else f"{low:+.3g} to {high:+.3g}"
        counts = (f"{change.better}", f"{change.worse}", f"{change.p:.2g}")
        table.add_row(escape(name), f"{a:.3g}", f"{b:.3g}", f"{mean:+.3g}", interval, *counts)
    return table
