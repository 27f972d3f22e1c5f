"""The `agent-rl certify` commands."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_rl.cli._arguments import Json, print_json, print_result

app = typer.Typer(
    rich_help_panel="check", help="Check an algorithm's gradient, or a finished run.", no_args_is_help=True
)

LINE = "{:<30} {:<20} {:>8} {:>8} {:>13} {:>8}  {}"


@app.command()
def algo(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]", help="Values of algo= or verl's estimators; default: all")
    ] = None,
    estimator: Annotated[str | None, typer.Option(help="Your own estimator: a function, as file.py:f")] = None,
    full: Annotated[bool, typer.Option("--full", help="Also test batches of 2048 groups")] = False,
    as_json: Json = False,
) -> None:
    r"""Compare the mean gradient of each algorithm with the exact gradient of its objective.

    \b
      agent-rl certify algo rloo turn
      agent-rl certify algo --estimator mine.py:advantages

    The command enumerates all groups of small tasks in float64; verl's functions compute advantages and loss. A value
    of `algo=` is certified with all its settings; an estimator is certified with a loss that sums over tokens. The
    columns show the worst cosine over the tasks, the worst cosine for a batch of 256 groups (2048 with --full), the
    length of the mean gradient relative to the exact gradient, and the variance relative to rloo.
    guides/algorithms.md explains the verdicts.

    Exit code 1: your function is biased.

    --json: `verl` (version), `certificates` (each: `name`, `objective`, `cosine`, `large_cosine`, `length`, `variance`,
    `verdict`, `processes`).
    """
    os.environ |= {"VERL_PLATFORM": "cpu", "VERL_LOGGING_LEVEL": "WARNING"}
    warnings.simplefilter("ignore")  # verl warns about engines that are not installed
    from agent_rl.verl_adapter.certificates.certificate import LARGE, certify
    from agent_rl.verl_adapter.patches import VERL_VERSION

    certificates: list[dict[str, Any]] = []
    for certificate in certify(names or [], estimator, LARGE if full else LARGE[:-1]):
        if not (certificates or as_json):
            print(LINE.format("algorithm", "objective", "cosine", "large", "length", "variance", "verdict"))
        certificates.append(certificate)
        if not as_json:
            print(_line(certificate), flush=True)
    if as_json:
        print_json({"verl": VERL_VERSION, "certificates": certificates})
    raise typer.Exit(any(own["name"] == estimator and own["verdict"].startswith("biased") for own in certificates))


@app.command()
def run(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder, or dump from another trainer (JSON lines)")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Weights that sampled the turns, to recompute log-probs: FOLDER or STEP=FOLDER; may be repeated"
        ),
    ] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Folder or name of the model; default: the run's model")] = None,
    algorithm: Annotated[
        str | None, typer.Option("--algo", help="Algorithm of the trainer that wrote the dump, as a value of algo=")
    ] = None,
    as_json: Json = False,
) -> None:
    r"""Certify a finished run: its tokens, masks, log-probs, rewards, advantages and untrained trajectories.

    \b
      agent-rl certify run outputs/gsm8k_calculator
      agent-rl certify run dump.jsonl --model 1=models/base --algo grpo

    Each line shows what was checked, what it was compared with, and the result: ok, problem, or not checked (and why).
    A run in sync mode is compared with its own model and checkpoints. guides/algorithms.md explains the lines, and the
    format of dumps.

    Exit code 1: a line reports a problem.

    --json: `ok`, `lines` (each with `check`, `source`, `text`, `status`, `problems`).
    """
    os.environ |= {"VERL_PLATFORM": "cpu", "VERL_LOGGING_LEVEL": "WARNING"}
    warnings.simplefilter("ignore")
    from agent_rl.evaluation.run_certificate import certify_run

    lines = certify_run(path, tokenizer, dict(map(_weights, model or [])), algorithm)
    ok = all(line.status != "problem" for line in lines)
    shown = []
    for line in lines:
        shown += [f"{line.status:<12} {line.check:<11} {line.text} [{line.source}]"]
        shown += [f"{'':<24} {problem}" for problem in line.problems]
    print_result({"ok": ok, "lines": [asdict(line) for line in lines]}, as_json, *shown)
    raise typer.Exit(not ok)


def _weights(text: str) -> tuple[int, str]:
    """Split `STEP=folder`; step 0 stands for all other steps."""
    step, sign, folder = text.partition("=")
    return (int(step), folder) if sign and step.isdigit() else (0, text)


def _line(certificate: Mapping[str, Any]) -> str:
    low, high = certificate["length"]
    figures = [(certificate[key], ".4f") for key in ("cosine", "large_cosine")] + [(certificate["variance"], ".2f")]
    cosine, large, variance = ("" if value is None else format(value, form) for value, form in figures)
    return LINE.format(
        certificate["name"],
        (certificate["objective"] or "none").partition(" (")[0],
        cosine,
        large,
        f"{low:.3f}" if high - low < 5e-4 else f"{low:.3f}-{high:.3f}",
        variance,
        certificate["verdict"],
    )
