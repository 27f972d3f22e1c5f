"""Generates docs/results.md from the receipts in recipes/*/results, for docs/references.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["results_page"]

ROOT = Path(__file__).parents[1]
DIGITS = 12
"""Number of digits of a hash that the page shows."""


def results_page(note: str, table: Any) -> str:
    """Return the text of the page.

    Args:
        note: first line of the page.
        table: makes a Markdown table from columns and rows.
    """
    files = sorted(ROOT.glob("recipes/*/results/**/receipt.json"))
    receipts = {file.relative_to(ROOT): json.loads(file.read_text()) for file in files}
    on_gpus = sum("+cpu" not in receipt["versions"]["torch"] for receipt in receipts.values())
    runs = sum(len(receipt["runs"]) for receipt in receipts.values())
    cards = len(list(ROOT.glob("recipes/published/*.yaml")))
    columns = (
        "recipe",
        "run",
        "rows",
        "before",
        "after",
        "gain",
        "steps",
        "s",
        "oracle",
        "baseline",
        "random",
        "command",
    )
    machine = ("receipt", "cold-start model", "configuration", "reward", "rows", "processor", "arithmetic", "versions")
    return "\n".join([
        f"""{note}
# Results

This page lists {runs} training runs with {len(receipts)} receipts, {on_gpus} of which are from GPUs. Each line shows
the success on held-out rows before and after training with 95 % intervals, the seconds that all training steps took,
and the success of the task's solver, of the best policy without a necessary part (mostly the tool), and of guesses. The
command repeats the run and the other seeds ([what a receipt is](guides/recipes.md#receipts), and how much repetitions
differ); the recipe's README describes the rows, and names files that the command needs. The model has about 0.1M
parameters, or is SmolLM2-135M with `size=smollm2`; a cold start teaches it before training.
""",
        table(columns, [row for file, receipt in receipts.items() for row in _runs(file, receipt)]),
        """## Models, hashes and versions

The hashes are the first digits of SHA-256. `make check` fails if a recipe no longer has the hashes of its receipt.
""",
        table(machine, [_origin(file, receipt) for file, receipt in receipts.items()]),
        f"""## What has never been run

- No recipe has been trained on {"more than one node" if on_gpus else "a GPU, nor on more than one node"}.
- None of the {cards} [published runs](guides/recipes.md#published-figures) has been repeated.
- These sizes have no receipt. Tests compose and check them, and take two steps with a tiny model in `size=cpu`.
""",
        table(("recipe", "sizes without a receipt"), list(_never(receipts))),
        f"Results of other commands, which the READMEs quote: {', '.join(_others())}.\n",
    ])  # fmt: skip


def _runs(file: Path, receipt: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each run of a receipt."""
    policies = receipt["policies"]
    baseline = max(value for name, value in policies.items() if name not in ("oracle", "random"))
    levels = [f"{value:.2f}" for value in (policies["oracle"], baseline, policies["random"])]
    for name, run in receipt["runs"].items():
        success = [_interval(run[key]) for key in ("before", "after", "gain")]
        costs = str(run["steps"]), f"{run['training_seconds']:.0f}"
        command = f"`VERL_PLATFORM=cpu {receipt['command']}`"
        yield (_link(file), name, str(receipt["held_out_rows"]), *success, *costs, *levels, command)


def _origin(file: Path, receipt: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row with what a receipt was made from."""
    hashes, machine = receipt["hashes"], receipt["machine"]
    digests = [receipt["cold_start_model_sha256"], *(hashes[name] for name in ("configuration", "reward", "rows"))]
    versions = ", ".join(f"{name} {version}" for name, version in receipt["versions"].items())
    processor = f"{machine['cpu']}, {machine['cores']} cores"
    return (
        _link(file),
        *(f"`{each[:DIGITS]}`" for each in digests),
        processor,
        machine.get("products", "not recorded"),
        versions,
    )


def _never(receipts: Mapping[Path, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each recipe with the sizes for which it has no receipt."""
    trained = {(file.parts[1], _size(receipt)) for file, receipt in receipts.items()}
    for folder in sorted(file.parent for file in ROOT.glob("recipes/*/README.md")):
        sizes = [file.stem for file in sorted(folder.glob("size/*.yaml"))]
        if never := [size for size in sizes if (folder.name, size) not in trained]:
            yield f"[{folder.name}](../recipes/{folder.name}/README.md)", ", ".join(never)


def _others() -> Iterator[str]:
    """Yield a link to each result that is not a receipt."""
    for file in sorted(ROOT.glob("recipes/*/results/*.json")):
        if file.name != "receipt.json":
            yield f"[{file.parts[-3]}/{file.name}](../{file.relative_to(ROOT)})"


def _size(receipt: Mapping[str, Any]) -> str:
    """Return the size of a receipt's runs; `cpu` is the default on a CPU."""
    return next((word[5:] for word in receipt.get("overrides", ()) if word.startswith("size=")), "cpu")


def _link(file: Path) -> str:
    """Return a link to a receipt, with the name of its recipe and of its folder in results/."""
    name = " ".join([file.parts[1], *file.parts[3:-1]])
    return f"[{name}](../{file})"


def _interval(estimate: Mapping[str, float]) -> str:
    return f"{estimate['mean']:.2f} [{estimate['low']:.2f}, {estimate['high']:.2f}]"
