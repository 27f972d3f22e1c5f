"""The `agent-rl experiment` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent_rl.cli._arguments import Json, print_result
from agent_rl.errors import ConfigError

app = typer.Typer(rich_help_panel="train", add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def experiment(
    recipe: Annotated[
        str | None, typer.Argument(help="Folder with config.yaml, or a recipe name, as listed by `agent-rl recipes`")
    ] = None,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=V1,V2", help="Hydra overrides; several values make a sweep")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs per variant, with seeds 1, 2, ...")] = 3,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the receipt; default: the recipe's results/, or a sweep's folder"),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only check that the receipts in recipes/ still match their recipes")
    ] = False,
    rehash: Annotated[
        bool,
        typer.Option("--rehash", help="Like --check, but also update receipts that differ only in an old scorer name"),
    ] = False,
    as_json: Json = False,
) -> None:
    r"""Run a recipe with several seeds or values; write a receipt.

    \b
      VERL_PLATFORM=cpu agent-rl experiment recipes/text_to_sql --seeds 3
      VERL_PLATFORM=cpu agent-rl experiment recipes/text_to_sql algo=grpo,rloo

    Run the same command again to resume an experiment that was killed. Runs are written to
    outputs/experiments/<recipe>. The receipt contains success rates on held-out rows for the policy before and after
    training (with intervals), the world's solver, and policies without the tool. The receipt also contains hashes,
    versions and the learning curve. If a seed fails, the command reports it and writes no receipt (exit code 1).

    --json: the receipt; with --check, `stale`: a sentence for each receipt that no longer matches.
    """
    from agent_rl.evaluation.experiments.experiment import Experiment, comparison
    from agent_rl.evaluation.experiments.receipt import check as stale_receipts
    from agent_rl.launch.recipes import results_folder

    if check or rehash:
        folders = [results_folder(recipe)] if recipe else sorted(Path("recipes").glob("*/results"))
        stale = [problem for folder in folders for problem in stale_receipts(folder.parent, rehash=rehash)]
        print_result({"stale": stale}, as_json, *(stale or [f"the receipts of {len(folders)} recipes match"]))
        raise typer.Exit(1 if stale else 0)
    if recipe is None:
        raise ConfigError("RECIPE", "no recipe was given", "Pass a recipe, or --check")
    run = Experiment(recipe, seeds, words or [])
    receipt = run.run(out or (run.folder / "results" if words else results_folder(recipe)))
    claims = (f"{'yes' if holds else 'NO '}  {name.replace('_', ' ')}" for name, holds in receipt["holds"].items())
    print_result(receipt, as_json, comparison(receipt), *claims)
    if run.failed:
        raise typer.Exit(1)
