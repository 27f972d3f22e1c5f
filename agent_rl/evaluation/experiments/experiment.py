"""`Experiment`: trains a recipe with several seeds and settings, one run for each combination, and writes one receipt.

A finished run is skipped, and a killed run resumes from its checkpoint. A failed run is reported, and does not stop
the other runs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from rich.table import Table
from rich.text import Text

from agent_rl.errors import AgentRLError
from agent_rl.evaluation.experiments.cold_start import ColdStart
from agent_rl.evaluation.experiments.outcome import RunOutcome, judgement, read_outcome, solved
from agent_rl.evaluation.experiments.receipt import RECEIPT, hashes, verdicts, write_curve
from agent_rl.evaluation.summary import cell
from agent_rl.launch.command import quoted
from agent_rl.launch.recipes import results_folder
from agent_rl.launch.run_folder import machine
from agent_rl.launch.task import is_task
from agent_rl.launch.training import train
from agent_rl.trajectory.estimates import estimate_rate
from agent_rl.verl_adapter.checkpoints import weights_digest

LONGEST = 100
"""Maximum number of characters in a variant's folder name."""


class Experiment:
    """Trains a recipe several times, with different seeds and with different values for its settings.

    Args:
        recipe: a folder with `config.yaml`, or the name of a recipe.
        seeds: number of seeds; the first seed is 1.
        words: `key=value` for all runs and the cold start, or `key=v1,v2` for a sweep; every combination is a variant.
        folder: folder of the runs; None means `outputs/experiments/<recipe>`.
    """

    def __init__(self, recipe: str, seeds: int, words: Sequence[str] = (), folder: Path | None = None) -> None:
        self.recipe, self.seeds = recipe, range(1, seeds + 1)
        self.name = results_folder(recipe).parent.name
        self.folder = folder or Path("outputs/experiments") / self.name
        choices = [_values(word) for word in words]
        self._fixed = [values[0] for values in choices if len(values) == 1]
        swept = (values for values in choices if len(values) > 1)
        self.variants = [list(variant) for variant in itertools.product(*swept)]
        self._words = list(words)
        self._hashes = hashes(recipe, self._fixed)
        self._digest = "".join(value[:6] for value in self._hashes.values())
        """Digest of the recipe and the rows; runs with a different configuration are stored in a different folder."""
        self.failed: dict[str, str] = {}
        """Error messages of failed runs, by run name."""

    def run(self, results: Path) -> dict[str, Any]:
        """Execute the runs that are not finished yet, and write the receipt and the curve.

        Args:
            results: folder for the receipt, created if needed. If a run fails, the folder is left unchanged.

        Returns:
            The receipt, which has the key `failed` if a run failed.
        """
        start = ColdStart(self.recipe, self._fixed)
        started = time.monotonic()
        if start.make():
            print(f"cold start: {start.model}, {time.monotonic() - started:.0f} s")
        chat, baselines = start.chat(start.model), start.world.baselines
        episodes = {name: start.run({name: 1.0}, "test", chat, name) for name in ("oracle", *baselines, "random")}
        policies = {name: estimate_rate([[solved(item)] for item in items]) for name, items in episodes.items()}
        judgements = {name: agreement for name, items in episodes.items() if (agreement := judgement(items))}
        runs: dict[str, RunOutcome] = {}
        for variant, seed in itertools.product(self.variants, self.seeds):
            name = " ".join([*variant, f"seed {seed}"])
            try:
                runs[name] = self._outcome(variant, seed)
            except AgentRLError as error:
                self.failed[name] = str(error)
                print(f"{name} failed: {error}")
        folders = (self._run_folder(*each) for each in itertools.product(self.variants, self.seeds))
        records = [file for folder in folders if (file := folder / "run.json").is_file()]
        target = self.recipe if is_task(self.recipe) else f"recipes/{self.name}"
        receipt: dict[str, Any] = {
            "command": shlex.join(["agent-rl", "experiment", target, "--seeds", str(len(self.seeds)), *self._words]),
            **({"overrides": self._fixed} if self._fixed else {}),
            "hashes": self._hashes,
            "cold_start_model_sha256": weights_digest(start.model),  # the weights depend on the CPU type
            "versions": json.loads(records[0].read_text())["versions"] if records else {},
            "machine": machine(start.model),
            "held_out_rows": start.settings.held_out,
            "runs": {name: run.plain() for name, run in runs.items()},
            "policies": {name: round(success.mean, 4) for name, success in policies.items()},
            **({"judgements": judgements} if judgements else {}),
            "holds": verdicts(list(runs.values()), policies, judgements, baselines),
        }  # fmt: skip
        if self.failed:
            return {**receipt, "failed": self.failed}
        results.mkdir(parents=True, exist_ok=True)
        write_curve(results, runs, policies, self.name)
        (results / RECEIPT).write_text(json.dumps(receipt, indent=2) + "\n", encoding="utf-8")
        return receipt

    def _outcome(self, variant: Sequence[str], seed: int) -> RunOutcome:
        """Start or resume the run of a variant with one seed, unless the run is finished; return its outcome."""
        folder = self._run_folder(variant, seed)
        done = folder / "done"
        if not done.is_file():
            words = [*self._fixed, *variant, f"data.seed={seed}", f"agent_rl.run.folder={quoted(folder)}"]
            if train(self.recipe, words) is not None:
                raise KeyboardInterrupt("run the same command again to resume after the last step")
            done.touch()
        return read_outcome(folder)

    def _run_folder(self, variant: Sequence[str], seed: int) -> Path:
        label = "_".join(word.replace("/", "-") for word in variant) or "base"
        if len(label) > LONGEST:
            label = f"{label[:LONGEST]}_{hashlib.sha256(label.encode()).hexdigest()[:8]}"
        return (self.folder / self._digest / label / f"seed_{seed}").absolute()


def comparison(receipt: dict[str, Any]) -> Table:
    """Return a table of the runs in a receipt."""
    table = Table(title="success on held-out rows", title_justify="left")
    for column in ("run", "before", "after", "gain", "s"):
        table.add_column(column, justify="left" if column == "run" else "right")
    for name, run in receipt["runs"].items():
        cells = (cell(run[key]) for key in ("before", "after", "gain"))
        table.add_row(Text(name), *cells, f"{run['training_seconds']:.0f}")
    for name, mean in receipt["policies"].items():
        table.add_row(name.replace("_", " "), "", f"{mean:.3f}", "", "")
    return table


def _values(word: str) -> list[str]:
    """Return a `key=value` word for each value of a sweep; a word that is not a sweep is returned unchanged."""
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:  # composing the recipe will report the invalid word
        return [word]
    if not override.is_sweep_override():
        return [word]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
