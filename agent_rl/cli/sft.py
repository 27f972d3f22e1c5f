"""The `agent-rl sft` command."""

from __future__ import annotations

import typer

from agent_rl.cli._arguments import Json, Overrides, Recipe, print_result

app = typer.Typer(rich_help_panel="train", add_completion=False)


@app.command()
def sft(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    r"""Make a recipe's cold start: rows from its world, and a small model trained on worked episodes.

    \b
      VERL_PLATFORM=cpu agent-rl sft recipes/text_to_sql
      VERL_PLATFORM=cpu agent-rl train recipes/text_to_sql

    The recipe's agent runs the episodes with its tools, and verl's SFT trainer trains the model on their turns. The
    agent_rl.cold_start section configures the cold start. Existing results are kept unless the section has changed.
    After an interruption, the same command resumes at the unfinished stage.

    --json: the paths `folder` and `model`, and `made`, which is false if nothing was missing.
    """
    from agent_rl.evaluation.experiments.cold_start import ColdStart

    start = ColdStart(recipe, overrides or [])
    is_new = start.make()
    result = {"folder": str(start.folder), "model": str(start.model), "made": is_new}
    print_result(result, as_json, f"{start.model}: {'made' if is_new else 'nothing to do'}")
