"""The `agent-rl parity` command."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agent_rl.cli._arguments import Json, Overrides, print_result, recipe_names

app = typer.Typer(rich_help_panel="check", add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def parity(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Folder with config.yaml, or a recipe's name", autocompletion=recipe_names),
    ] = None,
    overrides: Overrides = None,
    as_json: Json = False,
) -> None:
    r"""Compare a recipe with published runs: may their figures be quoted?

    \b
      agent-rl parity search_qa
      agent-rl parity math_python size=7b trainer.total_training_steps=200
      agent-rl parity                          # lists the published runs

    Each run is compared with the recipe in the size that copies it. The verdict is "same", "same but for N settings"
    (name them next to the figure), or "another task" (do not compare the figures). Settings that the run's sources do
    not give are unknown, and count as differences.

    --json: `runs`, by name: `run`, `numbers`, and with a recipe `words`, `verdict`, `differences` (each with `setting`,
    `published`, `here`).
    """
    from agent_rl.evaluation.parity import cards, compare

    runs: dict[str, dict[str, Any]] = {
        name: {"run": each.run, "numbers": each.numbers} for name, each in (cards() if recipe is None else {}).items()
    }
    lines = [f"{name:32} {each['run']}" for name, each in runs.items()]
    for name, each in ({} if recipe is None else compare(recipe, overrides or [])).items():
        facts = {"run": each.card.run, "numbers": each.card.numbers, "words": each.words, "verdict": each.verdict}
        runs[name] = facts | {"differences": [item._asdict() for item in each.differences]}
        unknown = ", ".join(item.setting for item in each.differences if item not in each.known)
        lines += [f"{name}: {each.card.run}. {each.figures}", *(f"  {source.url}" for source in each.card.sources)]
        lines += [f"  {item}" for item in each.known] + [f"  unknown: {unknown}"] * bool(unknown)
        lines += [f"{each.verdict} ({recipe} {' '.join(each.words)})", ""]
    lines = lines or [f"no published run is comparable with {recipe}; agent-rl parity lists all runs"]
    print_result({"runs": runs}, as_json, *lines)
