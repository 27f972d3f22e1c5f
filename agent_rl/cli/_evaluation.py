"""What `agent-rl eval` and `agent-rl fork` share; the commands import this module when they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_rl.errors import ConfigError
from agent_rl.evaluation.ledger import Ledger, Record
from agent_rl.evaluation.recipe import recipe_values, run_values, split_words
from agent_rl.evaluation.runner import Evaluation, run
from agent_rl.evaluation.settings import read_settings
from agent_rl.evaluation.sources import open_source
from agent_rl.launch.task import is_task, task_recipe
from agent_rl.verl_adapter.checkpoints import MERGED, model_folder
from agent_rl.work.progress import progress


def run_or_recipe(
    words: Sequence[str], recipe: str | None, *, has_model: bool
) -> tuple[Path | None, str | None, list[str]]:
    """Return the run's folder, the recipe, and the settings among the command line's words.

    A task's file among the words is the recipe if a model was given, and otherwise names the run.
    """
    runs = [word for word in words if "=" not in word]
    settings = [word for word in words if "=" in word]
    if len(runs) > 1:
        raise ConfigError("RUN", f"several runs were given: {', '.join(runs)}", "Evaluate one run at a time")
    place = Path(runs[0]) if runs else None
    if place is None or not is_task(str(place)):
        return place, recipe, settings
    return (None, str(place), settings) if has_model else (task_recipe(str(place)).parent, recipe, settings)


def opened(
    flags: dict[str, Any], run_folder: Path | None, recipe: str | None, words: list[str], out: Path | None
) -> tuple[Evaluation, Ledger]:
    """Return the evaluation that the command line describes, and its ledger."""
    values = None
    if run_folder is not None:
        values = run_values(run_folder, with_model="model" not in flags)
    if recipe is not None:
        choices, words = split_words(recipe, words)
        values = recipe_values(recipe, choices)
    settings = read_settings(flags, words, values)
    evaluation = Evaluation.load(settings)
    at_endpoint = settings.endpoint or settings.policy == "vllm"
    weights = None if at_endpoint else model_folder(settings.model, "model")
    name = f"{short_name(weights or Path(settings.model))}_{Path(settings.data).stem}"
    return evaluation, Ledger(out or Path("outputs/eval") / name, settings, weights)


def short_name(model: Path) -> str:
    """Return a model's name for use in a folder's name: for a checkpoint, its run and step."""
    if model.name != MERGED:
        return model.name
    *_, experiment, step = (part for part in model.absolute().parent.parts if part != "checkpoints")
    return f"{experiment}_{step}"


async def run_missing(evaluation: Evaluation, ledger: Ledger) -> None:
    """Run the episodes whose results are not in the ledger yet.

    Raises:
        AgentRLError: see `runner.run`.
    """
    size = len(evaluation.rows) * evaluation.settings.n
    rewards = [record.reward for record in ledger.read().values() if record.error is None]
    if len(rewards) == size:
        return
    async with open_source(evaluation.settings, ledger.folder) as source:
        with progress("episodes", size, len(rewards)) as advance:

            def note(record: Record) -> None:
                if record.error is None:
                    rewards.append(record.reward)
                advance(1, f"reward {sum(rewards) / len(rewards):+.3f}" if rewards else "nothing scored")

            await run(evaluation, source, ledger, note)
