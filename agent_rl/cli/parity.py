"""The `agent-rl parity` command."""

from __future__ import annotations

import typer

from agent_rl.cli._arguments import Json, Overrides, Recipe, print_result

app = typer.Typer(rich_help_panel="check", add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def parity(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    r"""Compare a recipe with published runs: the verdict says whether their figures are comparable.

    \b
      agent-rl parity search_qa
      agent-rl parity math_python size=7b trainer.total_training_steps=200

    Each published run is compared with the recipe in the size that reproduces the run. The verdict is "same", "same
    except for N settings" (name them next to the figure), or "another task" (do not compare the figures). Settings that
    the run's sources do not state are unknown, and are treated as differences.

    --json: `runs`, by name: `run`, `numbers`, `words`, `verdict`, `differences` (each with `setting`, `published`,
    `here`).
    """
    from agent_rl.evaluation.parity import compare

    compared, lines = compare(recipe, overrides or []), []
    for name, each in compared.items():
        unknown = ", ".join(item.setting for item in each.differences if item not in each.known)
        lines += [f"{name}: {each.card.run}. {each.figures}", *(f"  {source.url}" for source in each.card.sources)]
        lines += [f"  {item}" for item in each.known] + [f"  unknown: {unknown}"] * bool(unknown)
        lines += [f"{each.verdict} ({recipe} {' '.join(each.words)})", ""]
    lines = lines or [f"no card in recipes/published names {recipe} in this size"]
    print_result({"runs": {name: each.plain() for name, each in compared.items()}}, as_json, *lines)
