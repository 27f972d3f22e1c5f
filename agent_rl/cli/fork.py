"""The `agent-rl fork` command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_rl.cli._arguments import Json, print_result, recipe_names

app = typer.Typer(rich_help_panel="look", add_completion=False)

DEFAULTS = ("policy=sglang", "sampling.temperature=1", "sampling.top_p=1", "sampling.top_k=null")
"""Default settings, which sample turns from the policy's own distribution; the command line can override them."""
LINE = "{:>12} {:>5}  {:<20} {:>26} {:>11}"


@app.command()
def fork(
    source: Annotated[str, typer.Argument(metavar="TRACE", help="A trace, or the folder of a run or an evaluation")],
    turn: Annotated[str, typer.Option(help="First turn to sample: a number from 1, a range A-B, or all")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN] KEY=VALUE", help="As for `agent-rl eval`; RUN defaults to TRACE if it is a run"),
    ] = None,
    id: Annotated[list[str] | None, typer.Option("--id", help="Id of a trajectory; may be repeated")] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Use the first N scored trajectories")] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="Episodes per turn")] = 64,
    model: Annotated[str | None, typer.Option(help="Model folder, checkpoint or name; default: the run's")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Recipe that sets tools, limits and reward", autocompletion=recipe_names)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the episodes; default: a folder in outputs/fork")] = None,
    as_json: Json = False,
) -> None:
    r"""Estimate the value of a turn by continuing its trajectory.

    \b
      agent-rl fork outputs/my_run --id 17_2 --turn 3 -n 64
      agent-rl fork trace.jsonl --id 4_0 --turn 2 --recipe text_world --model MODEL

    Each episode restores the trajectory before the turn, token for token: recorded calls run again, and their results
    are compared with the recorded ones. A turn's value is the mean reward of its episodes, with a 95% interval. The
    worth of a turn is the next turn's value (for the last turn, the reward) minus its own value. Settings are those of
    `agent-rl eval`, such as endpoint=URL or tools=FILE, with policy=sglang (or vllm, local) and temperature 1.
    Run the same command again to resume. The folder contains trajectories.jsonl and values.json.

    --json: `trajectories` (each: `id`, `reward`, and `turns` with `turn`, `calls`, `value`, `low`, `high`, `episodes`
    and `difference`), `unscored` (counts by error), `of` (model, versions, hashes) and `folder`.
    """
    from agent_rl.cli._evaluation import opened, run_missing, run_or_recipe
    from agent_rl.evaluation.fork import ForkEvaluation, recordings_of, values, write_rows
    from agent_rl.evaluation.summary import cell, summarize
    from agent_rl.trajectory.trace.files import trace_of

    path = trace_of(source)
    recordings = list(recordings_of(path, turn, id or [], first))
    run, recipe, overrides = run_or_recipe(words or [], recipe, has_model=model is not None)
    if run is None and recipe is None and path.with_name("run.json").is_file():
        run = path.parent
    name = "_".join([path.resolve().parent.name, *(id or [f"first_{first or 1}"]), "turn", turn])
    folder = out or Path("outputs/fork") / name
    rows = folder / "rows.draft.parquet"
    write_rows(recordings, rows)
    flags: dict[str, Any] = {"data": str(rows), "n": n, "limit": None, **({} if model is None else {"model": model})}
    keys = {word.partition("=")[0] for word in overrides}
    overrides += [word for word in DEFAULTS if word.partition("=")[0] not in keys]
    evaluation, ledger = opened(flags, run, recipe, overrides, folder)
    with ledger:
        rows.replace(folder / "rows.parquet")
        try:
            asyncio.run(run_missing(ForkEvaluation.of(evaluation, recordings), ledger))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"the finished episodes are kept in {folder}") from None
        records = ledger.read().values()
        trajectories = values(recordings, records)
        unscored = summarize(records, rows=len(recordings), n=n)["unscored"]
        result = {"trajectories": trajectories, "unscored": unscored, "of": ledger.about()}
    (folder / "values.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [LINE.format("trajectory", "turn", "calls", "value before the turn", "difference")]
    for name, each in ((own["id"], each) for own in trajectories for each in own["turns"]):
        difference = "-" if each["difference"] is None else f"{each['difference']:+.3f}"
        value = cell({"mean": each["value"], **each})
        lines.append(LINE.format(name[-12:], each["turn"], ", ".join(each["calls"])[:20] or "-", value, difference))
    lines.append(f"{len(records):,} episodes. {folder}/values.json")
    lines += [f"{count:,} unscored: {error}" for error, count in unscored.items()]
    print_result({**result, "folder": str(folder)}, as_json, *lines)
