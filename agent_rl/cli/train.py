"""The `agent-rl train` command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from agent_rl.cli._arguments import (
    Data,
    Model,
    Overrides,
    Recipe,
    RewardFunctions,
    keys_with_model,
    names_a_model,
    print_json,
    print_result,
    stdout,
    with_additions,
)
from agent_rl.errors import AgentRLError, ConfigError

if TYPE_CHECKING:
    from agent_rl.launch.display import Display


app = typer.Typer(rich_help_panel="train", add_completion=False)


@app.command(context_settings={"ignore_unknown_options": True})
def train(
    recipe: Recipe,
    overrides: Overrides = None,
    model: Model = None,
    data: Data = None,
    reward: RewardFunctions = None,
    script: Annotated[
        str | None, typer.Option(help="Your script: registers agent loops, then calls verl.trainer.main_ppo.main()")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the composed configuration without starting a run")
    ] = False,
    predict: Annotated[
        str | None, typer.Option(help="Only print predictions for this run, based on the CPU run in this folder")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every line of the run's log")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per step, and one at the end")
    ] = False,
    nodes_timeout_s: Annotated[float, typer.Option(help="Number of seconds to wait for all nodes to join")] = 600,
) -> None:
    r"""Train a recipe with verl.

    \b
      agent-rl train gsm8k_calculator
      agent-rl train RECIPE size=3b actor_rollout_ref.rollout.n=16
      agent-rl train lockers.py --model Qwen/Qwen2.5-3B-Instruct
      agent-rl train RECIPE --script my_train.py
      agent-rl train RECIPE --dry-run > composed.yaml

    A run writes to outputs/<trainer.experiment_name>: run.json, train.log, metrics.jsonl, tensorboard, trace.jsonl,
    rollouts and checkpoints. The same command resumes the run from the newest checkpoint.

    Write keys as in the composed configuration; a group such as size= selects one of the group's files. For an unknown
    key, the error suggests the nearest known key.

    VERL_PLATFORM=cpu trains on a CPU: it adds the CPU profile, and size=cpu if the recipe has it.

    For several nodes, run the same command on each. Rank 0 starts Ray, waits for the other nodes and trains.

    \b
      NNODES=2 NODE_RANK=0 MASTER_ADDR=host0 agent-rl train RECIPE
      NNODES=2 NODE_RANK=1 MASTER_ADDR=host0 agent-rl train RECIPE

    MASTER_PORT is the port of Ray's head node, 6379 if unset. Under SLURM, srun sets all three variables. With
    RAY_ADDRESS, the run joins a running cluster; trainer.nnodes is then the number of nodes to use.

    Ctrl-C or SIGTERM stops the run after the current step and saves it; a second signal stops the run immediately.

    --predict prints predictions, each with its basis: turns, tokens, truncated episodes and groups with a signal come
    from a CPU run, memory comes from the doctor, and hours come from a published run.

    With --json, a step prints {event, step, of, metrics}; the end prints {event, status, exit_code, step, seconds,
    folder, log}, plus checkpoint and command if the run was stopped, or error if it failed or was aborted. With
    --dry-run the output is {configuration}, and with --predict {predictions}.

    Exit codes: 0 trained to the end; 75 stopped early and saved (the same command resumes); 2 unusable configuration or
    path; 129, 130, 143 stopped immediately by SIGHUP, SIGINT, SIGTERM; any other: the trainer failed.
    """
    from agent_rl.cpu import switch as cpu
    from agent_rl.evaluation.experiments.cold_start import ColdStart
    from agent_rl.launch.stopping import STOPPED
    from agent_rl.launch.task import is_task
    from agent_rl.launch.training import train as run

    recipe = with_additions(recipe, data, reward)
    keys = keys_with_model(recipe, overrides, model)
    starts_small = is_task(recipe) and cpu.is_selected() and not names_a_model(keys)
    start = ColdStart(recipe, keys) if starts_small else None  # raises an error if the task has a bad expert
    if predict is not None:
        from agent_rl.evaluation.prediction import predict as predicted

        predictions = [prediction._asdict() for prediction in predicted(recipe, keys, predict)]
        lines = (f"{each['quantity']:22} {each['value']}  ({each['basis']})" for each in predictions)
        print_result({"predictions": predictions}, as_json, *lines)
        return
    if dry_run:
        raise typer.Exit(_show_composed(recipe, keys, script, as_json))
    if start is not None:
        start.make()
    with _display(verbose, as_json) as display:
        stopped = run(recipe, keys, script, nodes_timeout_s=nodes_timeout_s, display=display)
    if stopped is not None:
        raise typer.Exit(STOPPED)


def _show_composed(recipe: str, overrides: list[str], script: str | None, as_json: bool) -> int:
    """Print the composed configuration and the launcher's notes about it; return the exit code."""
    from agent_rl.launch.training import dry_run

    composed, notes = dry_run(recipe, overrides, script)
    if as_json:
        print_json({"configuration": yaml.safe_load(composed)})
    else:
        print(composed, end="")
    print(*notes, sep="\n", file=sys.stderr)
    return 2 if len(notes) > 1 else 0


@contextmanager
def _display(verbose: bool, as_json: bool) -> Iterator[Display | None]:
    """Yield the run's display, or None for the default; with `--json`, also print how the run ended if it failed."""
    from agent_rl.launch.display import Display, JsonDisplay
    from agent_rl.launch.process import TrainerError
    from agent_rl.launch.stopping import Aborted

    records = JsonDisplay(stdout.get() or sys.stdout) if as_json else None
    try:
        yield records or (Display("verl") if verbose else None)
    except Aborted as error:
        if records is not None:
            records.aborted(error.by)
        raise
    except (AgentRLError, OSError) as error:
        code = 2 if isinstance(error, ConfigError | OSError) else 1
        status = error.status if isinstance(error, TrainerError) else code
        if records is not None:
            records.write_end("failed", status, error=str(error))
        if not isinstance(error, TrainerError):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(status) from error
